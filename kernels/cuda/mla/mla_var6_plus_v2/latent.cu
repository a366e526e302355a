/* mla_var6_plus v2, stage latent: the oldest `old` tokens by the latent cache, on tensor cores, pipelined.
 *
 * What differs from v1: tiles of tokens come in the background to swizzled shared memory; the products are dealt out to 8
 * warps such that shared memory is read little; scores are computed once; and the grid has as many blocks as the stage is
 * given multiprocessors, so that the new tokens are worked on beside it. See latent_pipelined.cuh. */
#include "../../common/latent_pipelined.cuh"

/* qc [b,h,s,K], qpe [b,h,s,P], z [b,t,K], kpe [b,t,P], part [splits,b,h,s,K], lse [splits,b,h,s] (base 2).
 * The grid may have any size. */
extern "C" __global__ void __launch_bounds__(THREADS, 1) latent(const element *qc, const element *qpe, const element *z,
                                                                const element *kpe, element *part, float *lse,
                                                                long long b, long long s, long long t, long long old,
                                                                long long h, float scale, long long causal,
                                                                long long splits)
{
    attend_latent(qc, qpe, z, kpe, part, lse, b, s, t, old, h, scale, causal, (int)splits);
}
