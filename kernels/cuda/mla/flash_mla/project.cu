/* flash_mla v0, stage project: o = latent · w_uv, one block a row, a thread a column. */
#include "../../common/element.cuh"

/* latent [b,h,s,k], w_uv [h,k,d], o [b,h,s,d]. Block x takes row x of the b * h * s. */
extern "C" __global__ void project(const float *latent, const element *w_uv, element *o, long long s, long long h,
                                   long long d, long long k)
{
    const int index = blockIdx.x;
    long long row = index, head = index / (int)s % (int)h;
    for (long long x = threadIdx.x; x < d; x += blockDim.x) {
        float sum = 0.0f;
        for (long long y = 0; y < k; y++)
            sum += latent[row * k + y] * to_float(w_uv[(head * k + y) * d + x]);
        o[row * d + x] = from_float(sum);
    }
}
