/* Online softmax: what attention keeps of the keys seen so far, and how partial results merge.
 *
 * Everything is in base 2: scores are multiplied by scale * log2(e), and the "lse" of a row is log2 of its sum of
 * 2^score. It is -infinity where no key is visible; such a part weighs 0 in a merge. */
#ifndef COMMON_SOFTMAX_CUH
#define COMMON_SOFTMAX_CUH

#include "element.cuh"

#define NO_SCORE (-__int_as_float(0x7f800000))
#define LOG2_E 1.4426950408889634f

/* 2^x, 0 for -infinity. */
INLINE float power_of_two(float x)
{
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

/* Weights may grow to 2^SLACK before `shift` follows the largest score: after the first tiles of a row it hardly ever
 * moves, and accumulators need not be rescaled. The result does not depend on it, as the sum is scaled alike. */
#define SLACK 8.0f

/* One row: scores are taken relative to `shift`, `total` is the sum of the weights 2^(score - shift). */
struct row_state {
    float shift;
    float total;
};

INLINE row_state no_keys()
{
    return {NO_SCORE, 0.0f};
}

/* Meets a tile whose largest score is `largest`. Returns the factor of everything summed so far. */
INLINE float follow(row_state &row, float largest)
{
    if (!(largest > row.shift + SLACK))
        return 1.0f;
    float factor = power_of_two(row.shift - largest);
    row.shift = largest;
    row.total *= factor;
    return factor;
}

/* What to subtract from scores: finite also while every score was -infinity. */
INLINE float subtrahend(const row_state &row)
{
    return row.shift == NO_SCORE ? 0.0f : row.shift;
}

INLINE float reciprocal_total(float total)
{
    return total > 0.0f ? 1.0f / total : 0.0f;
}

INLINE float lse_of(const row_state &row)
{
    return row.total > 0.0f ? row.shift + log2f(row.total) : NO_SCORE;
}

/* Over the 4 lanes that share a row of an mma tile. */
INLINE float largest_of_quad(float value)
{
    value = fmaxf(value, __shfl_xor_sync(~0u, value, 1));
    return fmaxf(value, __shfl_xor_sync(~0u, value, 2));
}

INLINE float sum_of_quad(float value)
{
    value += __shfl_xor_sync(~0u, value, 1);
    return value + __shfl_xor_sync(~0u, value, 2);
}

/* The scores of 16 queries and 8 * tiles keys, in C tiles of an mma, become weights; `rows` are those of this lane, g and
 * g + 8, of which each lane sums up its own columns only. Row r sees keys below visible[r]; the tile begins at key `key`;
 * `masked` says whether some row may not see all of it. Returns the factors of everything summed so far. */
template <int tiles>
INLINE float2 weigh(float (&score)[tiles][4], row_state (&rows)[2], float log2_scale, int key, const int (&visible)[2],
                    bool masked)
{
    float largest[2] = {NO_SCORE, NO_SCORE}, factor[2];
    if (masked) {
        int column = key + threadIdx.x % 4 * 2;
#pragma unroll
        for (int n = 0; n < tiles; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (column + n * 8 + i % 2 >= visible[i / 2])
                    score[n][i] = NO_SCORE;
    }
#pragma unroll
    for (int n = 0; n < tiles; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            largest[i / 2] = fmaxf(largest[i / 2], score[n][i]);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        factor[r] = follow(rows[r], largest_of_quad(largest[r]) * log2_scale);
        float shift = subtrahend(rows[r]);
#pragma unroll
        for (int n = 0; n < tiles; n++)
#pragma unroll
            for (int i = 2 * r; i < 2 * r + 2; i++) {
                score[n][i] = power_of_two(fmaf(score[n][i], log2_scale, -shift));
                rows[r].total += score[n][i];
            }
    }
    return make_float2(factor[0], factor[1]);
}

/* Query i of s sees key j of t when j <= t - s + i: how many keys it sees, at most `end` of them, none below 0. */
INLINE int visible_keys(long long t, long long s, long long i, bool causal, long long end)
{
    long long seen = causal && t - s + i + 1 < end ? t - s + i + 1 : end;
    return seen < 0 ? 0 : (int)seen;
}

#endif
