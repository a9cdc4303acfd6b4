/* The host time of a launch of a package, in nanoseconds: the least of rounds. HEADER, CALL, FUNCTION and FIELDS are
 * given when it is compiled. */
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <time.h>

#include HEADER

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return 1e9 * (double)time.tv_sec + (double)time.tv_nsec;
}

int main(void)
{
    packed_handle *handle;
    CALL call = {FIELDS};
    double least = 1e18;
    if (packed_load(&handle) != 0) return 2;
    for (int round = 0; round < 100; ++round) {
        double begun = now();
        for (int i = 0; i < 1000; ++i)
            if (FUNCTION(handle, &call, NULL) != 0) return 3;
        double taken = (now() - begun) / 1000;
        if (taken < least) least = taken;
    }
    printf("%.0f\n", least);
    return packed_unload(handle) != 0;
}
