/* Sums of weighted rows with the sums in registers: the second half of attention, and the projection of latent results.
 *
 * Before inclusion: ROWS (sums that share every loaded row) and VECTORS (vectors of each sum that are worked on at a
 * time); ROWS * VECTORS accumulators have to fit the registers. */
#ifndef COMMON_WEIGHTED_ROWS_H
#define COMMON_WEIGHTED_ROWS_H

#include "element.h"
#include "vector.h"

#define ROUND_UP(count, step) (((count) + (step) - 1) / (step) * (step))

ALWAYS_INLINE int64_t min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Copies `count` elements and fills up with zeros to `padded`. A vector at a time, as rows are too short for calls of
 * memcpy to pay (-fno-tree-loop-distribute-patterns keeps the compiler from making them). */
ALWAYS_INLINE void copy_row(float *restrict to, const element *restrict from, int64_t count, int64_t padded)
{
    int64_t x = 0;
    for (; x + LANES <= count; x += LANES) {
        float part[LANES];
        for (int l = 0; l < LANES; l++)
            part[l] = to_float(from[x + l]);
        memcpy(to + x, part, sizeof part);
    }
    for (; x < count; x++)
        to[x] = to_float(from[x]);
    for (; x < padded; x++)
        to[x] = 0.0f;
}

/* Asks for a row that will be copied soon. */
ALWAYS_INLINE void expect_row(const element *from, int64_t count)
{
    for (int64_t x = 0; x < count; x += 64 / (int64_t)sizeof *from)
        __builtin_prefetch(from + x, 0, 2);
}

ALWAYS_INLINE void fill_zero(float *to, int64_t count)
{
    memset(to, 0, (size_t)count * sizeof *to);
}

/* sum[r] = sum[r] * keep[r] + Σ weights[j][r] * values[j] for `vectors` vectors of ROWS sums. Everything is aligned to
 * a vector; strides are in floats. */
ALWAYS_INLINE void add_strip(float *sum, int64_t sum_stride, const float *keep, const float *weights,
                             const float *values, int64_t value_stride, int64_t count, const int vectors)
{
    vector sums[ROWS][VECTORS];
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 16
        for (int n = 0; n < vectors; n++)
            sums[r][n] = load(sum + r * sum_stride + n * LANES) * keep[r];
    for (int64_t j = 0; j < count; j++) {
        vector value[VECTORS];
#pragma GCC unroll 16
        for (int n = 0; n < vectors; n++) {
            vector one = load(values + j * value_stride + n * LANES);
            HOLD(one);
            value[n] = one;
        }
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; r++) {
            vector weight = splat(weights[j * ROWS + r]);
            HOLD(weight);
#pragma GCC unroll 16
            for (int n = 0; n < vectors; n++)
                sums[r][n] += value[n] * weight;
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 16
        for (int n = 0; n < vectors; n++)
            store(sum + r * sum_stride + n * LANES, sums[r][n]);
}

/* The same for sums of sum_stride floats. weights [count,ROWS], values [count,value_stride]. */
ALWAYS_INLINE void add_weighted_rows(float *sum, int64_t sum_stride, const float *keep, const float *weights,
                                     const float *values, int64_t value_stride, int64_t count)
{
    int64_t x = 0;
    for (; x + VECTORS * LANES <= sum_stride; x += VECTORS * LANES)
        add_strip(sum + x, sum_stride, keep, weights, values + x, value_stride, count, VECTORS);
    for (; x < sum_stride; x += LANES)
        add_strip(sum + x, sum_stride, keep, weights, values + x, value_stride, count, 1);
}

#endif
