/* ---- what the tables say ---- */

/* Classes of alignment. Aligned: addresses, and strides in elements, are multiples of 16. Addressed: addresses, and
 * strides in bytes, are. Any: nothing is known. A call takes the first class whose kernels fit it. */
enum { CLASSES = 3 };

/* The sizes with which a call begins; count is that of a batch or of groups. */
typedef struct {
    int64_t m, n, k, count;
} sizes;

/* A number that follows from the sizes; tables refer to it by its index. */
static int64_t number(int which, const sizes *s);

/* What numbers are made of: how many parts of y hold x, the lesser one, the least power of two not below either. */
static inline int64_t parts(int64_t x, int64_t y) { return (x + y - 1) / y; }
static inline int64_t least(int64_t x, int64_t y) { return x < y ? x : y; }
static inline int64_t power(int64_t x, int64_t y)
{
    int64_t number = 1;
    while (number < x || number < y) number *= 2;
    return number;
}

/* An operand: its dimensions (0: a number), the one of stride 1 or -1, the bytes of an element, whether it is written,
 * whether it may have any strides, its extents, and where it and its strides are in the call (0: not given). */
typedef struct {
    signed char rank, unit, bytes, written, loose;
    short extent[3], field, strides[3];
} operand;

/* A part of the workspace. */
typedef struct {
    signed char rank, bytes, cleared;
    short extent[3], stride[3];
} memory;

/* How a matrix becomes a tensor map. */
typedef struct {
    signed char turned, rank, swizzle, bytes, type, padded, nan;
    short box[3];
} map;

enum { ADDRESS, NUMBER, STRIDE, SCALAR, MAP };

/* An argument of a kernel; one of no bytes is a constant of the image. `which` is a value (an operand, or behind them a
 * part of the workspace) or a number. The kernel may be compiled for a multiple of 16, or for 1. */
typedef struct {
    signed char kind, bytes, divisible, one;
    short which, dimension;
    const map *described;
} argument;

typedef struct {
    int image, grid[3], count;
    const argument *arguments;
} launch;

/* What a call launches, one behind the other. `narrow` (offsets of 32 bits) and `cleared` have a bit for each operand. */
typedef struct {
    const launch *launches;
    const memory *memories;
    int count, memories_count;
    uint32_t narrow, cleared;
} entry;

/* The sizes for which the same is launched: M from `first` to `last`. A class without a kernel has NULL. */
typedef struct {
    int64_t n, k, first, last;
    const entry *entries[CLASSES];
} run;

/* `several` is the only count of a batch or of groups, or 0; the workspace, if any, is at that place of the call. */
typedef struct {
    const operand *operands;
    const run *runs;
    int operands_count, runs_count, several, workspace;
} contract;

typedef struct {
    const void *data;
    const char *name;
    unsigned shared, threads;
} image;

/* ---- the driver ---- */

typedef int CUresult;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct {
    ALIGNED(64) uint64_t words[16];
} tensor_map;

enum {
    FUNCTION_SHARED_SIZE = 1,
    FUNCTION_MAX_DYNAMIC_SHARED = 8,
    CACHE_PREFER_SHARED = 1,
    DEVICE_MAJOR = 75,
    DEVICE_MINOR = 76,
    DEVICE_SHARED_OPTIN = 97,
    INTERLEAVE_NONE = 0,
    PROMOTION_L2_128B = 2
};

/* What is used of libcuda.so.1, and whether it is needed: old drivers lack the last one. */
#define DRIVER(F)                                                                                                      \
    F(1, cuCtxGetCurrent, (CUcontext *))                                                                               \
    F(1, cuCtxGetDevice, (int *))                                                                                      \
    F(1, cuDeviceGetAttribute, (int *, int, int))                                                                      \
    F(1, cuDriverGetVersion, (int *))                                                                                  \
    F(1, cuModuleLoadData, (CUmodule *, const void *))                                                                 \
    F(1, cuModuleUnload, (CUmodule))                                                                                   \
    F(1, cuModuleGetFunction, (CUfunction *, CUmodule, const char *))                                                  \
    F(1, cuFuncGetAttribute, (int *, int, CUfunction))                                                                 \
    F(1, cuFuncSetAttribute, (CUfunction, int, int))                                                                   \
    F(1, cuFuncSetCacheConfig, (CUfunction, int))                                                                      \
    F(1, cuMemsetD8Async, (uint64_t, unsigned char, size_t, CUstream))                                                 \
    F(1, cuMemsetD2D8Async, (uint64_t, size_t, unsigned char, size_t, size_t, CUstream))                               \
    F(1, cuLaunchKernel,                                                                                               \
      (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **))  \
    F(NEEDS_MAPS, cuTensorMapEncodeTiled,                                                                              \
      (tensor_map *, int, uint32_t, void *, const uint64_t *, const uint64_t *, const uint32_t *, const uint32_t *,    \
       int, int, int, int))

typedef struct PACKAGE(handle) {
    void *library;
    CUcontext context;
    int version;
    const image *images;
    CUmodule modules[IMAGES];
    CUfunction functions[IMAGES];
#define MEMBER(needed, name, arguments) CUresult (*name) arguments;
    DRIVER(MEMBER)
} handle;

/* A result of the driver as a status. */
static int of_cuda(CUresult result) { return result == 0 ? STATUS(OK) : STATUS(CUDA) + result; }

/* Load an image; it gets as much shared memory as Triton's own loader gives it. */
static int load_image(handle *h, int i, int optin)
{
    const image *x = &h->images[i];
    int reserved = 0;
    CUresult result = h->cuModuleLoadData(&h->modules[i], x->data);
    if (result == 0) result = h->cuModuleGetFunction(&h->functions[i], h->modules[i], x->name);
    if (result != 0 || x->shared <= 49152) return of_cuda(result);
    result = h->cuFuncSetCacheConfig(h->functions[i], CACHE_PREFER_SHARED);
    if (result == 0) result = h->cuFuncGetAttribute(&reserved, FUNCTION_SHARED_SIZE, h->functions[i]);
    if (result == 0 && (int)x->shared > optin - reserved) return STATUS(SHARED_MEMORY);
    if (result == 0)
        result = h->cuFuncSetAttribute(h->functions[i], FUNCTION_MAX_DYNAMIC_SHARED, optin - reserved);
    return of_cuda(result);
}

static int load_all(handle *h)
{
    int device = 0, major = 0, minor = 0, optin = 0, status = STATUS(OK);
    void *entry;
    h->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (h->library == NULL) return STATUS(NO_DRIVER);
#define FIND(needed, name, arguments)                                                                                  \
    entry = dlsym(h->library, #name);                                                                                  \
    if (entry == NULL && needed) return STATUS(OLD_DRIVER);                                                            \
    memcpy(&h->name, &entry, sizeof entry);
    DRIVER(FIND)
    CUresult result = h->cuCtxGetCurrent(&h->context);
    if (result == 0 && h->context == NULL) return STATUS(NO_CONTEXT);
    if (result == 0) result = h->cuCtxGetDevice(&device);
    if (result == 0) result = h->cuDriverGetVersion(&h->version);
    if (result == 0) result = h->cuDeviceGetAttribute(&major, DEVICE_MAJOR, device);
    if (result == 0) result = h->cuDeviceGetAttribute(&minor, DEVICE_MINOR, device);
    if (result == 0) result = h->cuDeviceGetAttribute(&optin, DEVICE_SHARED_OPTIN, device);
    if (result != 0) return of_cuda(result);
    if (major != MAJOR || minor != MINOR) return STATUS(OTHER_GPU);
    for (int i = 0; i < IMAGES && status == STATUS(OK); ++i) status = load_image(h, i, optin);
    return status;
}

static int unload_all(handle *h)
{
    CUresult first = 0;
    for (int i = 0; i < IMAGES; ++i) {
        CUresult result = h->modules[i] == NULL ? 0 : h->cuModuleUnload(h->modules[i]);
        if (first == 0) first = result;
    }
    if (h->library != NULL) dlclose(h->library);
    free(h);
    return of_cuda(first);
}

static int load(handle **made, const image *images)
{
    if (made == NULL) return STATUS(NO_HANDLE);
    *made = NULL;
    handle *h = (handle *)calloc(1, sizeof *h);
    if (h == NULL) return STATUS(NO_MEMORY);
    h->images = images;
    int status = load_all(h);
    if (status == STATUS(OK))
        *made = h;
    else
        unload_all(h);
    return status;
}

int PACKAGE(unload)(handle *h)
{
    CUcontext current = NULL;
    CUresult result = h == NULL ? 0 : h->cuCtxGetCurrent(&current);
    if (h == NULL || result != 0) return of_cuda(result);
    return current == h->context ? unload_all(h) : STATUS(OTHER_CONTEXT);
}

/* The words of a status that is none of the package's own. */
static const char *words_of_cuda(int status)
{
    switch (status - STATUS(CUDA)) {
    case 1: return "the CUDA driver: invalid value";
    case 2: return "the CUDA driver: out of memory";
    case 3: return "the CUDA driver: not initialized: call cuInit first";
    case 4: return "the CUDA driver: it is shutting down";
    case 100: return "the CUDA driver: no GPU";
    case 200: return "the CUDA driver: the image is invalid";
    case 201: return "the CUDA driver: the context is invalid";
    case 209: return "the CUDA driver: the image is for another GPU";
    case 222: return "the CUDA driver: the image is of another version";
    case 400: return "the CUDA driver: a stream or another handle is invalid";
    case 700: return "the CUDA driver: an address is illegal; the context is lost";
    case 701: return "the CUDA driver: too many registers or too much shared memory for the launch";
    case 719: return "the CUDA driver: a kernel failed; the context is lost";
    case 900: return "the CUDA driver: the operation is not permitted while the stream is captured";
    default: break;
    }
    if (status > STATUS(CUDA)) return "the CUDA driver reports an error; its CUresult is the status less 1000";
    return "not a status of this library";
}

/* ---- a call: what it is given, and whether a kernel may be launched for it ---- */

/* An operand, or a part of the workspace, of a call. */
typedef struct {
    uint64_t address;
    int64_t extent[3], stride[3];
    float number;
} value;

/* The elements from the first to the last, both included. */
static int64_t span(int rank, const value *v)
{
    int64_t elements = 1;
    for (int i = 0; i < rank; ++i) elements += (v->extent[i] - 1) * v->stride[i];
    return elements;
}

/* Whether elements of a result share an address: a stride is not beyond what the smaller ones reach. */
static int overlaps(int rank, const value *v)
{
    for (int i = 0; i < rank; ++i) {
        int64_t reach = 0;
        for (int j = 0; j < rank; ++j)
            if (v->stride[j] < v->stride[i] || (v->stride[j] == v->stride[i] && j < i))
                reach += (v->extent[j] - 1) * v->stride[j];
        if (v->extent[i] > 1 && v->stride[i] <= reach) return 1;
    }
    return 0;
}

/* Take an operand from a call, and check it. */
static int take(const operand *x, const char *call, const sizes *s, value *v)
{
    int rank = x->rank, unit = x->unit, empty = 0;
    if (rank == 0) {
        memcpy(&v->number, call + x->field, sizeof v->number);
        return STATUS(OK);
    }
    memcpy(&v->address, call + x->field, sizeof v->address);
    for (int i = 0; i < rank; ++i) {
        v->extent[i] = number(x->extent[i], s);
        v->stride[i] = i == unit;
        if (x->strides[i] != 0) memcpy(&v->stride[i], call + x->strides[i], sizeof v->stride[i]);
        empty |= v->extent[i] == 0;
    }
    if (rank > 1 && unit >= 0 && !x->loose) {
        int line = 2 * rank - 3 - unit;
        if (v->stride[line] == 0) v->stride[line] = v->extent[unit] > 1 ? v->extent[unit] : 1;
        if (v->extent[line] > 1 && v->stride[line] < v->extent[unit]) return STATUS(LEADING_DIMENSION);
    }
    for (int i = 0; i < rank; ++i)
        if (v->stride[i] < 0) return STATUS(LEADING_DIMENSION);
    if (empty) return STATUS(OK);
    if (v->address == 0) return STATUS(NO_ADDRESS);
    return x->written && overlaps(rank, v) ? STATUS(OVERLAP) : STATUS(OK);
}

/* Place the parts of an entry's workspace behind `address`; returns their bytes. */
static size_t place(const entry *e, const sizes *s, uint64_t address, value *values)
{
    size_t bytes = 0;
    for (int i = 0; i < e->memories_count; ++i) {
        const memory *x = &e->memories[i];
        for (int j = 0; j < x->rank; ++j) {
            values[i].extent[j] = number(x->extent[j], s);
            values[i].stride[j] = number(x->stride[j], s);
        }
        values[i].address = address + bytes;
        bytes += ((size_t)span(x->rank, &values[i]) * (size_t)x->bytes + 255) / 256 * 256;
    }
    return bytes;
}

/* A launch as the driver takes it. An argument that is a tensor map is followed by its extents and its strides; of the
 * map its slot has the address. */
typedef union {
    uint64_t address;
    int64_t wide;
    int32_t narrow;
    float number;
} slot;
typedef struct {
    ALIGNED(128) tensor_map maps[MOST_MAPS];
    const map *described[MOST_MAPS];
    const slot *lines[MOST_MAPS];
    slot slots[MOST_ARGUMENTS];
    void *params[MOST_ARGUMENTS];
    int64_t grid[3];
    int count, mapped;
} frame;

/* Describe a matrix by row-major lines, as a tensor map does; ALIGNMENT if it cannot. A stride that is never used is an
 * aligned one, which the hardware asks for. */
static int describe(const map *x, const value *v, slot *lines)
{
    int rank = x->rank, rows = x->turned ? rank - 1 : rank - 2, columns = 2 * rank - 3 - rows;
    slot *extent = lines + 1, *stride = extent + rank;
    lines->address = v->address;
    extent[rank - 2].narrow = (int32_t)v->extent[rows];
    extent[rank - 1].narrow = (int32_t)v->extent[columns];
    stride[rank - 1].wide = 1;
    stride[rank - 2].wide = v->extent[rows] > 1 ? v->stride[rows] : parts(v->extent[columns], 16) * 16;
    if (rank > 2) {
        extent[0].narrow = (int32_t)v->extent[0];
        stride[0].wide = v->extent[0] > 1 ? v->stride[0] : v->extent[rows] * stride[1].wide;
    }
    if (v->address % 16 != 0) return STATUS(ALIGNMENT);
    for (int i = 0; i + 1 < rank; ++i)
        if (stride[i].wide * x->bytes % 16 != 0 || stride[i].wide <= 0) return STATUS(ALIGNMENT);
    return stride[rank - 2].wide < v->extent[columns] ? STATUS(ALIGNMENT) : STATUS(OK);
}

/* Prepare a launch; the status says why it cannot be made: what its kernel was compiled for does not hold. */
static int prepare(const launch *l, const sizes *s, const value *values, frame *f)
{
    f->count = f->mapped = 0;
    for (int i = 0; i < 3; ++i) f->grid[i] = number(l->grid[i], s);
    if (f->grid[0] > INT32_MAX || f->grid[1] > 65535 || f->grid[2] > 65535) return STATUS(GRID);
    for (int i = 0; i < l->count; ++i) {
        const argument *x = &l->arguments[i];
        const value *v = &values[x->kind == NUMBER ? 0 : x->which];
        slot *own = &f->slots[f->count];
        if (x->kind == MAP) {
            int status = describe(x->described, v, own);
            if (status != STATUS(OK)) return status;
            f->described[f->mapped] = x->described;
            f->lines[f->mapped] = own;
            f->params[f->count++] = &f->maps[f->mapped++];
            for (int j = 1; j <= 2 * x->described->rank; ++j) f->params[f->count++] = own + j;
            continue;
        }
        int64_t whole = 0;
        if (x->kind == NUMBER) whole = number(x->which, s);
        if (x->kind == STRIDE) whole = v->stride[x->dimension];
        if (x->kind == ADDRESS) whole = (int64_t)v->address;
        if ((x->divisible && whole % 16 != 0) || (x->one && whole != 1)) return STATUS(ALIGNMENT);
        if (x->kind == STRIDE && x->bytes == 4 && whole > INT32_MAX) return STATUS(SPAN);
        if (x->bytes == 0) continue;
        if (x->kind == SCALAR)
            own->number = v->number;
        else if (x->bytes == 4)
            own->narrow = (int32_t)whole;
        else
            own->wide = whole;
        f->params[f->count++] = own;
    }
    /* What Triton adds to every kernel: the scratch memory of the kernel and of a profiler, none. */
    for (int i = 0; i < 2; ++i) {
        f->slots[f->count].address = 0;
        f->params[f->count] = &f->slots[f->count];
        f->count++;
    }
    return STATUS(OK);
}

/* ---- a call: launching ---- */

/* Encode a tensor map as Triton's launcher does, the innermost dimension first. */
static CUresult encode(const handle *h, const map *x, const slot *lines, tensor_map *made)
{
    uint64_t extents[3], pitches[3], last = 0;
    uint32_t box[3], ones[3] = {1, 1, 1};
    int rank = x->rank;
    for (int i = 0; i < rank; ++i) {
        uint64_t pitch = (uint64_t)(lines[2 * rank - i].wide * x->bytes);
        extents[i] = (uint64_t)lines[rank - i].narrow << (x->padded && i == 0);
        box[i] = (uint32_t)x->box[rank - 1 - i];
        if (i > 0) pitches[i - 1] = pitch;
        last += (extents[i] - 1) * pitch;
    }
    CUresult result =
        h->cuTensorMapEncodeTiled(made, x->type, (uint32_t)rank, (void *)(uintptr_t)lines->address, extents, pitches,
                                  box, ones, INTERLEAVE_NONE, x->swizzle, PROMOTION_L2_128B, x->nan);
    /* Drivers up to 13.1 set a bit for small matrices that must not be set; Triton and CUTLASS clear it. */
    if (result == 0 && h->version <= 13010 && last + 1 < 128 * 1024) made->words[1] &= ~((uint64_t)1 << 21);
    return result;
}

/* Fill a matrix, or each of a batch, with zeros. */
static CUresult clear(const handle *h, const operand *x, const value *v, CUstream stream)
{
    int rank = x->rank, line = 2 * rank - 3 - x->unit;
    size_t size = (size_t)x->bytes, width = (size_t)v->extent[(int)x->unit] * size, lines = (size_t)v->extent[line];
    size_t pitch = (size_t)v->stride[line] * size;
    CUresult result = 0;
    for (int64_t i = 0; i < (rank > 2 ? v->extent[0] : 1) && result == 0; ++i) {
        uint64_t address = v->address + (uint64_t)(rank > 2 ? i * v->stride[0] : 0) * size;
        if (pitch == width || lines == 1)
            result = h->cuMemsetD8Async(address, 0, width * lines, stream);
        else
            result = h->cuMemsetD2D8Async(address, pitch, 0, width, lines, stream);
    }
    return result;
}

/* Launch an entry: its workspace and results are made ready, then the kernels follow each other. */
static CUresult start(const handle *h, const contract *c, const entry *e, const value *values, frame *frames,
                      CUstream stream)
{
    CUresult result = 0;
    for (int i = 0; i < e->memories_count && result == 0; ++i) {
        const memory *x = &e->memories[i];
        const value *v = &values[c->operands_count + i];
        size_t bytes = (size_t)span(x->rank, v) * (size_t)x->bytes;
        if (x->cleared) result = h->cuMemsetD8Async(v->address, 0, bytes, stream);
    }
    for (int i = 0; i < c->operands_count && result == 0; ++i)
        if (e->cleared >> i & 1) result = clear(h, &c->operands[i], &values[i], stream);
    for (int i = 0; i < e->count && result == 0; ++i) {
        frame *f = &frames[i];
        const image *x = &h->images[e->launches[i].image];
        if (f->grid[0] <= 0 || f->grid[1] <= 0 || f->grid[2] <= 0) continue;
        for (int j = 0; j < f->mapped && result == 0; ++j)
            result = encode(h, f->described[j], f->lines[j], &f->maps[j]);
        if (result == 0)
            result = h->cuLaunchKernel(h->functions[e->launches[i].image], (unsigned)f->grid[0], (unsigned)f->grid[1],
                                       (unsigned)f->grid[2], x->threads, 1, 1, x->shared, stream, f->params, NULL);
    }
    return result;
}

/* Whether the sizes are before, in or behind those of a run. */
static int compare(const void *key, const void *element)
{
    const sizes *s = (const sizes *)key;
    const run *r = (const run *)element;
    if (s->n != r->n) return s->n < r->n ? -1 : 1;
    if (s->k != r->k) return s->k < r->k ? -1 : 1;
    return s->m < r->first ? -1 : s->m > r->last;
}

static const run *find_run(const contract *c, const sizes *s)
{
    return (const run *)bsearch(s, c->runs, (size_t)c->runs_count, sizeof(run), compare);
}

/* The sizes of a call. */
static int take_sizes(const contract *c, const void *call, sizes *s)
{
    if (call == NULL) return STATUS(NO_CALL);
    s->count = 1;
    memcpy(s, call, c->several ? sizeof *s : offsetof(sizes, count));
    return c->several == 0 || s->count == c->several || s->count == 0 ? STATUS(OK) : STATUS(SIZES);
}

/* Make a call. */
static int run_call(const handle *h, const contract *c, const void *call, void *stream)
{
    sizes s;
    value values[MOST_VALUES];
    frame frames[MOST_LAUNCHES];
    uint64_t workspace[2] = {0, 0}; /* its address and size */
    CUcontext current = NULL;
    int status = take_sizes(c, call, &s);
    if (status != STATUS(OK)) return status;
    if (h == NULL) return STATUS(NO_HANDLE);
    if (s.m < 0 || s.n < 0 || s.k < 0 || s.count < 0) return STATUS(SIZES);
    for (int i = 0; i < c->operands_count; ++i) {
        status = take(&c->operands[i], (const char *)call, &s, &values[i]);
        if (status != STATUS(OK)) return status;
    }
    if (s.m == 0 || s.n == 0 || s.count == 0) return STATUS(OK);
    const run *r = find_run(c, &s);
    if (r == NULL) return STATUS(SIZES);
    CUresult result = h->cuCtxGetCurrent(&current);
    if (result != 0) return of_cuda(result);
    if (current != h->context) return STATUS(OTHER_CONTEXT);
    if (c->workspace != 0) memcpy(workspace, (const char *)call + c->workspace, sizeof workspace);
    status = STATUS(ALIGNMENT);
    for (int i = 0; i < CLASSES; ++i) {
        const entry *e = r->entries[i];
        if (e == NULL) continue;
        /* A workspace at a wrong address is refused below, not by the kernels that use it. */
        size_t bytes = place(e, &s, workspace[0] / 256 * 256, values + c->operands_count);
        status = STATUS(OK);
        for (int j = 0; j < c->operands_count; ++j)
            if ((e->narrow >> j & 1) && span(c->operands[j].rank, &values[j]) > (int64_t)1 << 31) status = STATUS(SPAN);
        for (int j = 0; j < e->count && status == STATUS(OK); ++j)
            status = prepare(&e->launches[j], &s, values, &frames[j]);
        if (status != STATUS(OK)) continue;
        if (bytes > 0 && (workspace[0] == 0 || workspace[0] % 256 != 0 || workspace[1] < bytes))
            return STATUS(WORKSPACE);
        return of_cuda(start(h, c, e, values, frames, (CUstream)stream));
    }
    return status;
}

/* The largest workspace that a call of these sizes may need, whatever its alignment. */
static int workspace_of(const contract *c, const void *call, size_t *bytes)
{
    sizes s;
    value values[MOST_VALUES];
    int status = take_sizes(c, call, &s);
    if (status != STATUS(OK)) return status;
    if (bytes == NULL) return STATUS(NO_CALL);
    *bytes = 0;
    if (s.m == 0 || s.n == 0 || s.count == 0) return STATUS(OK);
    const run *r = find_run(c, &s);
    for (int i = 0; r != NULL && i < CLASSES; ++i) {
        size_t own = r->entries[i] == NULL ? 0 : place(r->entries[i], &s, 0, values);
        if (own > *bytes) *bytes = own;
    }
    return r == NULL ? STATUS(SIZES) : STATUS(OK);
}
