/* Online softmax over blocks of keys, in plain C that the compiler vectorises: what the v1 kernels are made of.
 *
 * A block of at most ROWS queries stays in memory close to the core while the keys pass by, KEYS at a time. The keys
 * of a block are first copied side by side: in the cache they then have no gaps (rows of [b,t,h,d] lie h * d elements
 * apart, which maps all of them to the same few cache sets), and bfloat16 is converted once instead of once a query.
 * Dot products run over four keys at once, as one sum alone would wait for its own last addition; the flag
 * -fassociative-math lets the compiler spread each of them over a vector.
 *
 * Before inclusion: SCORE_DIMS (elements of a query and of a key), VALUE_DIMS, ROWS, KEYS (a multiple of 8). */
#ifndef COMMON_BLOCKED_H
#define COMMON_BLOCKED_H

#include <math.h>
#include <stdint.h>

#include "element.h"

#define LANES 8
_Static_assert(KEYS % LANES == 0, "keys are taken four and LANES at a time");

/* What is known about ROWS queries after some of the keys: with m the largest score so far, the sum of exp(score - m)
 * and the sum of exp(score - m) * value. */
struct queries {
    float query[ROWS][SCORE_DIMS];
    float largest[ROWS];
    float total[ROWS];
    float sum[ROWS][VALUE_DIMS];
};

static inline int64_t min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void copy_row(float *restrict to, const element *restrict from, int64_t count)
{
    for (int64_t x = 0; x < count; x++)
        to[x] = to_float(from[x]);
}

static void fill_zero(float *to, int64_t count)
{
    for (int64_t x = 0; x < count; x++)
        to[x] = 0.0f;
}

/* exp(x) for x <= 0, within 2 units in the last place near 0 and a relative 1e-6 everywhere down to -87; below that, also
 * for -infinity, 1.6e-38. A loop over it vectorises, which a call of the library's expf does not, nor a comparison of
 * floats: among negative floats the larger pattern of bits is the smaller number. */
static inline float exp_negative(float x)
{
    const uint32_t least = 0xc2ae0000; /* -87 */
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = bits < least ? bits : least;
    memcpy(&x, &bits, sizeof x);
    float power = x * 1.44269504f;
    int32_t whole = (int32_t)(power - 0.5f);
    float f = power - (float)whole;
    float result = 1.54035304e-4f;
    result = result * f + 1.33335581e-3f;
    result = result * f + 9.61812911e-3f;
    result = result * f + 5.55041087e-2f;
    result = result * f + 2.40226507e-1f;
    result = result * f + 6.93147181e-1f;
    result = result * f + 1.0f;
    memcpy(&bits, &result, sizeof bits);
    bits += (uint32_t)whole << 23;
    memcpy(&result, &bits, sizeof result);
    return result;
}

/* Query r is `first` followed by `second`, times `scale`. */
static inline void load_query(struct queries *state, int64_t r, const element *first, int64_t first_dims,
                              const element *second, int64_t second_dims, float scale)
{
    copy_row(state->query[r], first, first_dims);
    copy_row(state->query[r] + first_dims, second, second_dims);
    for (int64_t x = 0; x < SCORE_DIMS; x++)
        state->query[r][x] *= scale;
}

/* Starts with no key seen. */
static void begin_queries(struct queries *state, int64_t rows)
{
    for (int64_t r = 0; r < rows; r++) {
        state->largest[r] = -INFINITY;
        state->total[r] = 0.0f;
        fill_zero(state->sum[r], VALUE_DIMS);
    }
}

/* Scores of one query with KEYS keys, LANES at once: fewer sums would wait for their own last addition. */
static void dot_products(float *restrict scores, const float *restrict query, const float (*restrict key)[SCORE_DIMS])
{
    for (int64_t j = 0; j < KEYS; j += LANES) {
        float s0 = 0.0f, s1 = 0.0f, s2 = 0.0f, s3 = 0.0f, s4 = 0.0f, s5 = 0.0f, s6 = 0.0f, s7 = 0.0f;
        for (int64_t x = 0; x < SCORE_DIMS; x++) {
            s0 += query[x] * key[j][x];
            s1 += query[x] * key[j + 1][x];
            s2 += query[x] * key[j + 2][x];
            s3 += query[x] * key[j + 3][x];
            s4 += query[x] * key[j + 4][x];
            s5 += query[x] * key[j + 5][x];
            s6 += query[x] * key[j + 6][x];
            s7 += query[x] * key[j + 7][x];
        }
        scores[j] = s0;
        scores[j + 1] = s1;
        scores[j + 2] = s2;
        scores[j + 3] = s3;
        scores[j + 4] = s4;
        scores[j + 5] = s5;
        scores[j + 6] = s6;
        scores[j + 7] = s7;
    }
}

/* The largest of KEYS scores and `floor`, in LANES strands that fit a vector (a single strand would not vectorise, as
 * the compiler may not assume that there is no NaN). */
static float max_of(const float *scores, float floor)
{
    float strand[LANES];
    for (int64_t l = 0; l < LANES; l++)
        strand[l] = floor;
    for (int64_t j = 0; j < KEYS; j += LANES)
        for (int64_t l = 0; l < LANES; l++)
            strand[l] = strand[l] > scores[j + l] ? strand[l] : scores[j + l];
    for (int64_t l = 0; l < LANES; l++)
        floor = floor > strand[l] ? floor : strand[l];
    return floor;
}

/* sum = sum * keep + Σ weight[j] * value[j], the rows of values `stride` floats apart. */
static void add_values(float *restrict sum, float keep, const float *restrict weight, const float *restrict value,
                       int64_t stride)
{
    for (int64_t x = 0; x < VALUE_DIMS; x++)
        sum[x] *= keep;
    for (int64_t j = 0; j < KEYS; j += LANES) {
        const float *v = value + j * stride, *w = weight + j;
        for (int64_t x = 0; x < VALUE_DIMS; x++)
            sum[x] += w[0] * v[x] + w[1] * v[stride + x] + w[2] * v[2 * stride + x] + w[3] * v[3 * stride + x] +
                      w[4] * v[4 * stride + x] + w[5] * v[5 * stride + x] + w[6] * v[6 * stride + x] +
                      w[7] * v[7 * stride + x];
    }
}

/* Query r meets a block of keys, of which it sees the first `visible` (at most KEYS; none where it is not positive).
 * All KEYS rows of keys and values must be finite, seen or not. */
static void meet_keys(struct queries *state, int64_t r, int64_t visible, const float (*key)[SCORE_DIMS],
                      const float *value, int64_t stride)
{
    if (visible <= 0)
        return;
    float scores[KEYS];
    dot_products(scores, state->query[r], key);
    for (int64_t j = visible; j < KEYS; j++)
        scores[j] = -INFINITY;

    float largest = max_of(scores, state->largest[r]);
    float keep = exp_negative(state->largest[r] - largest);
    float total = 0.0f;
    for (int64_t j = 0; j < KEYS; j++)
        scores[j] = exp_negative(scores[j] - largest);
    for (int64_t j = 0; j < KEYS; j++)
        total += scores[j];
    state->largest[r] = largest;
    state->total[r] = state->total[r] * keep + total;
    add_values(state->sum[r], keep, scores, value, stride);
}

/* Factor that makes sum[r] the result: 0 where no key was seen. */
static inline float normaliser(const struct queries *state, int64_t r)
{
    return state->total[r] > 0.0f ? 1.0f / state->total[r] : 0.0f;
}

/* Logarithm of the sum of exp(score) over the keys seen: -infinity where there is none. */
static inline float log_sum_exp(const struct queries *state, int64_t r)
{
    return state->total[r] > 0.0f ? state->largest[r] + logf(state->total[r]) : -INFINITY;
}

#endif
