/* mla_var6_plus v0, stage combine: merges old and new tokens by their log-sum-exp, o = old share * latent · w_uv + new
 * share * fresh; one block a row, a thread a column. */
#include "../../common/softmax.cuh"

/* latent [b,h,s,k] (read where n < t), fresh [b,h,s,d] (read where n > 0) and their lse [b,h,s], w_uv [h,k,d],
 * o [b,h,s,d]. Block x takes row x of the b * h * s. */
extern "C" __global__ void combine(const float *latent, const float *latent_lse, const float *fresh,
                                   const float *fresh_lse, const element *w_uv, element *o, long long s, long long t,
                                   long long n, long long h, long long d, long long k)
{
    const int index = blockIdx.x;
    long long row = index, head = index / (int)s % (int)h;
    float old_lse = n < t ? latent_lse[row] : NO_SCORE, new_lse = n > 0 ? fresh_lse[row] : NO_SCORE;
    float largest = fmaxf(old_lse, new_lse);
    float old_share = 0.0f, new_share = 0.0f;
    if (largest > NO_SCORE) {
        old_share = exp2f(old_lse - largest);
        new_share = exp2f(new_lse - largest);
        float total = old_share + new_share;
        old_share /= total;
        new_share /= total;
    }
    for (long long x = threadIdx.x; x < d; x += blockDim.x) {
        float sum = 0.0f;
        if (n < t)
            for (long long y = 0; y < k; y++)
                sum += latent[row * k + y] * to_float(w_uv[(head * k + y) * d + x]);
        sum *= old_share;
        if (n > 0)
            sum += new_share * fresh[row * d + x];
        o[row * d + x] = from_float(sum);
    }
}
