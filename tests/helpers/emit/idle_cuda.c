/* A CUDA driver that does nothing as fast as it can, so that the time of a launch is that of a package's own code. */
#include <stddef.h>
#include <stdint.h>

static int made;

int cuCtxGetCurrent(void **context) { return *context = &made, 0; }
int cuCtxGetDevice(int *device) { return *device = 0; }
int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    /* The compute capability of an H200, and its shared memory. */
    *value = attribute == 75 ? 9 : attribute == 76 ? 0 : 232448;
    return device;
}
int cuModuleLoadData(void **module, const void *image) { return *module = (void *)image, 0; }
int cuModuleUnload(void *module) { return module == NULL; }
int cuModuleGetFunction(void **function, void *module, const char *name) { return *function = module, name == NULL; }
int cuFuncGetAttribute(int *value, int attribute, void *function) { return *value = 0, attribute < 0 && function; }
int cuFuncSetAttribute(void *function, int attribute, int value) { return function == NULL && attribute == value; }
int cuFuncSetCacheConfig(void *function, int config) { return function == NULL && config; }
int cuMemsetD8Async(uint64_t to, unsigned char byte, size_t count, void *stream)
{
    return to == 0 && byte && count && stream;
}
int cuMemsetD2D8Async(uint64_t to, size_t pitch, unsigned char byte, size_t width, size_t height, void *stream)
{
    return to == 0 && pitch && byte && width && height && stream;
}
int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned ty, unsigned tz,
                   unsigned shared, void *stream, void **params, void **extra)
{
    (void)x, (void)y, (void)z, (void)threads, (void)ty, (void)tz, (void)shared, (void)stream, (void)extra;
    return function == NULL || params == NULL;
}
int cuLaunchKernelEx(const void *config, void *function, void **params, void **extra)
{
    (void)extra;
    return config == NULL || function == NULL || params == NULL;
}
int cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, void *address, const uint64_t *extents,
                           const uint64_t *pitches, const uint32_t *box, const uint32_t *steps, int interleave,
                           int swizzle, int promotion, int fill)
{
    (void)type, (void)rank, (void)extents, (void)pitches, (void)box, (void)steps;
    (void)interleave, (void)swizzle, (void)promotion, (void)fill;
    return map == NULL || address == NULL;
}
