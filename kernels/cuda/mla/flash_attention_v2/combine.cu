/* flash_attention v2, stage combine: merges the parts of the splits by their log-sum-exp. */
#include "../../common/mma.cuh"
#include "../../common/softmax.cuh"

/* part [SPLITS,b,h,s,D], lse [SPLITS,b,h,s] (base 2), o [b,h,s,D]; `rows` are b * h * s. A thread takes two elements. */
extern "C" __global__ void combine(const float *part, const float *lse, element *o, long long rows)
{
    long long pair = blockIdx.x * (long long)blockDim.x + threadIdx.x, row = pair / (D / 2);
    if (row >= rows)
        return;
    float largest = NO_SCORE;
#pragma unroll
    for (int i = 0; i < SPLITS; i++)
        largest = fmaxf(largest, lse[i * rows + row]);
    float total = 0.0f, first = 0.0f, second = 0.0f;
    if (largest > NO_SCORE)
#pragma unroll
        for (int i = 0; i < SPLITS; i++) {
            float weight = power_of_two(lse[i * rows + row] - largest);
            float2 values = *reinterpret_cast<const float2 *>(part + (i * rows * (D / 2) + pair) * 2);
            total += weight;
            first += weight * values.x;
            second += weight * values.y;
        }
    float factor = reciprocal_total(total);
    store_pair(o + pair * 2, first * factor, second * factor);
}
