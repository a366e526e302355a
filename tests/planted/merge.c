/* Last stage of the two-stream pipeline. */
#include <stdint.h>

void merge(const float *a, const float *b, float *o, int64_t n, int64_t block)
{
    for (int64_t i = block * n; i < (block + 1) * n; i++)
        o[i] = a[i] + b[i];
}
