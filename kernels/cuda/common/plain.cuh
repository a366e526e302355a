/* Attention of one query row, as it is defined: what the v0 kernels are made of. Any sizes, float arithmetic.
 *
 * A block of THREADS threads takes one row. It goes over the keys THREADS at a time: a warp computes one score after
 * the other, its lanes along the dimensions; then all threads turn the scores into weights; then each thread adds up its
 * own columns of the values. Online softmax only in that the running maximum may grow from one block of keys to the
 * next, so that any number of keys fits. */
#ifndef COMMON_PLAIN_CUH
#define COMMON_PLAIN_CUH

#include "softmax.cuh"

#define THREADS 128
#define WARPS (THREADS / 32)

INLINE float reduce_block(float value, bool largest)
{
    __shared__ float warps[WARPS];
    for (int other = 16; other > 0; other /= 2) {
        float theirs = __shfl_xor_sync(~0u, value, other);
        value = largest ? fmaxf(value, theirs) : value + theirs;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        warps[threadIdx.x / 32] = value;
    __syncthreads();
    value = warps[0];
    for (int i = 1; i < WARPS; i++)
        value = largest ? fmaxf(value, warps[i]) : value + warps[i];
    return value;
}

/* A key is `first` followed by `second`, a query likewise; rows of keys and values lie `stride` elements apart. */
struct plain_keys {
    const element *first;
    long long first_dims, first_stride;
    const element *second;
    long long second_dims, second_stride;
    const element *value;
    long long value_dims, value_stride;
};

/* Leaves the result over the first `keys` keys in `sum` (shared, value_dims), 0 where there is none, and returns its lse.
 * `query` (shared) has room for first_dims + second_dims. */
INLINE float attend_row(const element *first, const element *second, const plain_keys &from, long long keys,
                        float scale, float *query, float *sum)
{
    __shared__ float weights[THREADS];
    int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    for (long long x = thread; x < from.first_dims; x += THREADS)
        query[x] = to_float(first[x]) * (scale * LOG2_E);
    for (long long x = thread; x < from.second_dims; x += THREADS)
        query[from.first_dims + x] = to_float(second[x]) * (scale * LOG2_E);
    for (long long x = thread; x < from.value_dims; x += THREADS)
        sum[x] = 0.0f;
    __syncthreads();

    float shift = NO_SCORE, total = 0.0f;
    for (long long start = 0; start < keys; start += THREADS) {
        int present = (int)(keys - start < THREADS ? keys - start : THREADS);
        for (int j = warp; j < present; j += WARPS) {
            const element *key = from.first + (start + j) * from.first_stride;
            float score = 0.0f;
            for (long long x = lane; x < from.first_dims; x += 32)
                score += query[x] * to_float(key[x]);
            key = from.second + (start + j) * from.second_stride;
            for (long long x = lane; x < from.second_dims; x += 32)
                score += query[from.first_dims + x] * to_float(key[x]);
            for (int other = 16; other > 0; other /= 2)
                score += __shfl_xor_sync(~0u, score, other);
            if (lane == 0)
                weights[j] = score;
        }
        __syncthreads();
        float score = thread < present ? weights[thread] : NO_SCORE;
        float largest = fmaxf(shift, reduce_block(score, true));
        float factor = exp2f(shift - largest), weight = exp2f(score - largest);
        shift = largest;
        total = total * factor + reduce_block(weight, false);
        weights[thread] = weight;
        __syncthreads();
        for (long long x = thread; x < from.value_dims; x += THREADS) {
            const element *value = from.value + start * from.value_stride + x;
            float added = sum[x] * factor;
#pragma unroll 4
            for (int j = 0; j < present; j++)
                added += weights[j] * to_float(value[j * from.value_stride]);
            sum[x] = added;
        }
        __syncthreads();
    }
    for (long long x = thread; x < from.value_dims; x += THREADS)
        sum[x] *= reciprocal_total(total);
    return total > 0.0f ? shift + log2f(total) : NO_SCORE;
}

#endif
