/* peak_fma: how many fused multiply-adds the cores do, with nothing in their way.
 *
 * ACCUMULATORS vectors of WIDTH bytes are each multiplied and added to STEPS times over. They do not depend on one
 * another, so enough of them hide the latency of a fused multiply-add; too many no longer fit the registers. Which
 * count and width is best depends on the machine, so both are tried. Factor and addend come from memory and the sums go
 * there, so that the compiler can neither compute nor drop them. Arithmetic is in float whatever the dtype, as in the
 * kernels. */
#include "../../common/element.h"

typedef float vector __attribute__((vector_size(WIDTH)));

/* One of the blocks. from [2]: a factor below 1, which keeps the values finite, and an addend; to [blocks]. */
void fma_rate(const element *from, element *to, int64_t steps, int64_t block)
{
    vector factor = to_float(from[0]) - (vector){0}, addend = to_float(from[1]) - (vector){0};
    vector sums[ACCUMULATORS];
#pragma GCC unroll 32
    for (int i = 0; i < ACCUMULATORS; i++)
        sums[i] = addend * (float)(i + 1);
    for (int64_t n = 0; n < steps; n++)
#pragma GCC unroll 32
        for (int i = 0; i < ACCUMULATORS; i++)
            sums[i] = sums[i] * factor + addend;
    vector total = {0};
    for (int i = 0; i < ACCUMULATORS; i++)
        total += sums[i];
    float result = 0.0f;
    for (unsigned l = 0; l < WIDTH / sizeof(float); l++)
        result += total[l];
    to[block] = from_float(result);
}
