/* A CUDA driver that runs nothing: it writes what it is called with to the file FAKE_CUDA_LOG, a line for each call.
 *
 * FAKE_CUDA_SIZES names a file with a line for each image in the order in which they are loaded: its bytes, then those
 * of each parameter of its kernel. FAKE_CUDA_FAIL is a function's name and the CUresult that it returns.
 *
 * With FAKE_CUDA_COMPUTE=1 a launch computes gelu_tanh(A @ B + bias) of fp16, A row-major and B column-major, by its
 * arguments: it takes the memory that the functions below allocate, of the host.
 */
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 256

static struct {
    long bytes, count, sizes[64];
} images[MOST];
static int loaded, maps, sized, fresh;
static void *current = (void *)0x1234;

static void read_sizes(void)
{
    char line[2048];
    const char *path = getenv("FAKE_CUDA_SIZES");
    FILE *file = path == NULL ? NULL : fopen(path, "r");
    int image = 0;
    sized = 1;
    if (file == NULL) return;
    while (image < MOST && fgets(line, sizeof line, file) != NULL) {
        char *at = line;
        images[image].bytes = strtol(at, &at, 10);
        while (*at == ' ') images[image].sizes[images[image].count++] = strtol(at, &at, 10);
        ++image;
    }
    fclose(file);
}

/* The CUresult of a call, which is written with the words behind its name. */
static int called(const char *name, const char *form, ...)
{
    const char *path = getenv("FAKE_CUDA_LOG"), *fail = getenv("FAKE_CUDA_FAIL");
    FILE *file = path == NULL ? NULL : fopen(path, "a");
    size_t length = strlen(name);
    va_list words;
    va_start(words, form);
    if (!sized) read_sizes();
    if (file != NULL) {
        fputs(name, file);
        vfprintf(file, form, words);
        fputc('\n', file);
        fclose(file);
    }
    va_end(words);
    return fail != NULL && strncmp(fail, name, length) == 0 && fail[length] == ' ' ? atoi(fail + length) : 0;
}

static uint64_t hash(const unsigned char *data, long bytes)
{
    uint64_t found = 14695981039346656037u;
    for (long i = 0; i < bytes; ++i) found = (found ^ data[i]) * 1099511628211u;
    return found;
}

/* What a program uses of the driver beside a package. Device memory is memory of the host. */
int cuInit(unsigned flags) { return (int)flags; }
int cuDeviceGet(int *device, int index) { return *device = index; }
int cuDevicePrimaryCtxRetain(void **context, int device)
{
    *context = current;
    return device;
}
int cuCtxSetCurrent(void *context) { return context != current; }
int cuCtxSynchronize(void) { return 0; }
int cuMemAlloc_v2(uint64_t *address, size_t bytes)
{
    void *found = aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (found != NULL) memset(found, 0xff, bytes);
    *address = (uint64_t)(uintptr_t)found;
    return found == NULL ? 2 : 0;
}
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes)
{
    memcpy((void *)(uintptr_t)to, from, bytes);
    fresh = 1;
    return 0;
}
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes)
{
    memcpy(to, (void *)(uintptr_t)from, bytes);
    return 0;
}

int cuCtxGetCurrent(void **context)
{
    const char *other = getenv("FAKE_CUDA_CONTEXT");
    *context = other == NULL ? current : (void *)(uintptr_t)strtoull(other, NULL, 16);
    return called("cuCtxGetCurrent", "");
}

int cuCtxGetDevice(int *device)
{
    *device = 0;
    return called("cuCtxGetDevice", "");
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    const char *shared = getenv("FAKE_CUDA_SHARED"), *major = getenv("FAKE_CUDA_MAJOR");
    *value = attribute == 75   ? (major == NULL ? 9 : atoi(major))
             : attribute == 97 ? (shared == NULL ? 232448 : atoi(shared))
                               : 0;
    (void)device;
    return called("cuDeviceGetAttribute", "");
}

int cuDriverGetVersion(int *version)
{
    *version = 12080;
    return called("cuDriverGetVersion", "");
}

int cuModuleLoadData(void **module, const void *data)
{
    if (!sized) read_sizes();
    int image = loaded++;
    *module = (void *)(uintptr_t)loaded;
    return called("cuModuleLoadData", " %d %016llx", image, (unsigned long long)hash(data, images[image].bytes));
}

int cuModuleUnload(void *module) { return called("cuModuleUnload", " %d", (int)(uintptr_t)module - 1); }

int cuModuleGetFunction(void **function, void *module, const char *name)
{
    *function = module;
    return called("cuModuleGetFunction", " %d %s", (int)(uintptr_t)module - 1, name);
}

int cuFuncGetAttribute(int *value, int attribute, void *function)
{
    (void)function;
    *value = attribute == 1 ? 16 : 0;
    return called("cuFuncGetAttribute", "");
}

int cuFuncSetAttribute(void *function, int attribute, int value)
{
    return called("cuFuncSetAttribute", " %d %d %d", (int)(uintptr_t)function - 1, attribute, value);
}

int cuFuncSetCacheConfig(void *function, int config)
{
    return called("cuFuncSetCacheConfig", " %d %d", (int)(uintptr_t)function - 1, config);
}

int cuMemsetD8Async(uint64_t address, unsigned char value, size_t bytes, void *stream)
{
    return called("cuMemsetD8Async", " %llx %d %zu %llx", (unsigned long long)address, value, bytes,
                  (unsigned long long)(uintptr_t)stream);
}

int cuMemsetD2D8Async(uint64_t address, size_t pitch, unsigned char value, size_t width, size_t height, void *stream)
{
    return called("cuMemsetD2D8Async", " %llx %zu %d %zu %zu %llx", (unsigned long long)address, pitch, value, width,
                  height, (unsigned long long)(uintptr_t)stream);
}

/* A tensor map that names itself: its number, and ones. */
int cuTensorMapEncodeTiled(uint64_t *map, int type, uint32_t rank, void *address, const uint64_t *dims,
                           const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave,
                           int swizzle, int promotion, int fill)
{
    char words[1024];
    int at = snprintf(words, sizeof words, " %d %d %u %llx", maps, type, rank, (unsigned long long)(uintptr_t)address);
    for (uint32_t i = 0; i < rank; ++i) at += snprintf(words + at, sizeof words - at, " %llu", (unsigned long long)dims[i]);
    for (uint32_t i = 0; i + 1 < rank; ++i)
        at += snprintf(words + at, sizeof words - at, " %llu", (unsigned long long)strides[i]);
    for (uint32_t i = 0; i < rank; ++i) at += snprintf(words + at, sizeof words - at, " %u", box[i]);
    for (uint32_t i = 0; i < rank; ++i) at += snprintf(words + at, sizeof words - at, " %u", steps[i]);
    snprintf(words + at, sizeof words - at, " %d %d %d %d", interleave, swizzle, promotion, fill);
    if ((uintptr_t)map % 64 != 0) return called("cuTensorMapEncodeTiled", " misaligned");
    memset(map, 0xff, 128);
    map[0] = (uint64_t)maps++;
    return called("cuTensorMapEncodeTiled", "%s", words);
}

static void compute(int image, void **params)
{
    const char *wanted = getenv("FAKE_CUDA_COMPUTE");
    /* The launches that are timed compute nothing. */
    if (wanted == NULL || wanted[0] != '1' || !fresh) return;
    fresh = 0;
    const _Float16 *a = *(_Float16 **)params[0], *b = *(_Float16 **)params[1], *bias = *(_Float16 **)params[3];
    _Float16 *out = *(_Float16 **)params[2];
    /* M, N, K, and three strides; an M of 1 is a constant. Two more come last. */
    int count = (int)images[image].count - 4 - 2, numbers[6];
    numbers[0] = 1;
    for (int i = 0; i < count; ++i) numbers[6 - count + i] = *(int *)params[4 + i];
    for (int i = 0; i < numbers[0]; ++i)
        for (int j = 0; j < numbers[1]; ++j) {
            double x = (double)bias[j];
            for (int k = 0; k < numbers[2]; ++k)
                x += (double)a[(long)i * numbers[3] + k] * (double)b[(long)j * numbers[4] + k];
            out[(long)i * numbers[5] + j] = (_Float16)(0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))));
        }
}

int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **params, void **extra)
{
    static char words[16384];
    int image = (int)(uintptr_t)function - 1;
    int at = snprintf(words, sizeof words, " %d %u %u %u %u %u %u %u %llx", image, x, y, z, bx, by, bz, shared,
                      (unsigned long long)(uintptr_t)stream);
    (void)extra;
    for (long i = 0; i < images[image].count; ++i) {
        at += snprintf(words + at, sizeof words - at, " ");
        for (long j = 0; j < images[image].sizes[i]; ++j)
            at += snprintf(words + at, sizeof words - at, "%02x", ((unsigned char *)params[i])[j]);
    }
    compute(image, params);
    return called("cuLaunchKernel", "%s", words);
}
