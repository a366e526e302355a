/* flash_mla v2, stage latent: attention over the latent cache on tensor cores, pipelined.
 *
 * What differs from v1: tiles of tokens come in the background to swizzled shared memory; the products are dealt out to 8
 * warps such that shared memory is read little; scores are computed once; accumulators are rescaled only when a maximum
 * has grown much; and where there are few blocks, the tokens are split. See latent_pipelined.cuh. */
#include "../../common/latent_pipelined.cuh"

/* qc [b,h,s,K], qpe [b,h,s,P], z [b,t,K], kpe [b,t,P], part [splits,b,h,s,K], lse [splits,b,h,s] (base 2).
 * The grid may have any size. */
extern "C" __global__ void __launch_bounds__(THREADS, 1) latent(const element *qc, const element *qpe, const element *z,
                                                                const element *kpe, element *part, float *lse,
                                                                long long b, long long s, long long t, long long h,
                                                                float scale, long long causal, long long splits)
{
    attend_latent(qc, qpe, z, kpe, part, lse, b, s, t, t, h, scale, causal, (int)splits);
}
