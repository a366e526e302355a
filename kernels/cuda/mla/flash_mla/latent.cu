/* flash_mla v0, stage latent: attention over the latent cache, as it is defined.
 *
 * Queries arrive absorbed (qc = q · w_ukᵀ), so the latent vector of a token serves as its key and as its value, for all
 * heads. One block a query row, float arithmetic; see plain.cuh. */
#include "../../common/plain.cuh"

/* qc [b,h,s,k], qpe [b,h,s,p], z [b,t,k], kpe [b,t,p], latent [b,h,s,k].
 * Block x takes row x of the b * h * s. Shared memory: k + p + k floats. */
extern "C" __global__ void __launch_bounds__(THREADS) latent(const element *qc, const element *qpe, const element *z,
                                                             const element *kpe, float *latent, long long s,
                                                             long long t, long long h, long long k, long long p,
                                                             float scale, long long causal)
{
    extern __shared__ float shared[];
    float *query = shared, *sum = shared + k + p;
    const int index = blockIdx.x, heads = (int)h, queries = (int)s;
    long long row = index, query_index = index % queries, request = index / queries / heads;

    plain_keys from;
    from.first = z + request * t * k;
    from.first_dims = from.first_stride = k;
    from.second = kpe + request * t * p;
    from.second_dims = from.second_stride = p;
    from.value = from.first;
    from.value_dims = from.value_stride = k;
    attend_row(qc + row * k, qpe + row * p, from, visible_keys(t, s, query_index, causal, t), scale, query, sum);
    for (long long x = threadIdx.x; x < k; x += THREADS)
        latent[row * k + x] = sum[x];
}
