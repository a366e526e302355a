/* flash_mla v1, stage latent: attention over the latent cache on tensor cores.
 *
 * What differs from v0: 32 queries, of all heads alike, meet a tile of tokens at a time through mma.sync with online
 * softmax, so that a token is read once for 32 queries; and the result is rounded to elements, which `project` needs for
 * its tensor cores. See latent_mma.cuh. */
#include "../../common/latent_mma.cuh"

/* qc [b,h,s,K], qpe [b,h,s,P], z [b,t,K], kpe [b,t,P], latent [b,h,s,K].
 * Block (x, y): of the h * s queries of request y those from 32x on. */
extern "C" __global__ void __launch_bounds__(THREADS) latent(const element *qc, const element *qpe, const element *z,
                                                             const element *kpe, element *latent, long long s,
                                                             long long t, long long h, float scale, long long causal)
{
    attend_latent(qc, qpe, z, kpe, latent, nullptr, s, t, t, h, scale, causal, blockIdx.y, blockIdx.x);
}
