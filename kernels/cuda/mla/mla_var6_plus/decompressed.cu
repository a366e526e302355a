/* mla_var6_plus v0, stage decompressed: the newest n tokens by their decompressed keys and values, as attention is
 * defined.
 *
 * One block a query row, float arithmetic; see plain.cuh. */
#include "../../common/plain.cuh"

/* q [b,h,s,d], qpe [b,h,s,p], key and value [b,n,h,d], kpe [b,t,p], fresh [b,h,s,d], lse [b,h,s] (base 2).
 * Block x takes row x of the b * h * s. Shared memory: d + p + d floats. */
extern "C" __global__ void __launch_bounds__(THREADS)
decompressed(const element *q, const element *qpe, const element *key, const element *value, const element *kpe,
             float *fresh, float *lse, long long s, long long t, long long n, long long h, long long d, long long p,
             float scale, long long causal)
{
    extern __shared__ float shared[];
    float *query = shared, *sum = shared + d + p;
    const int index = blockIdx.x, heads = (int)h, queries = (int)s;
    long long row = index, query_index = index % queries, head = index / queries % heads,
              request = index / queries / heads, old = t - n;

    plain_keys from;
    from.first = key + (request * n * h + head) * d;
    from.first_dims = d;
    from.first_stride = h * d;
    from.second = kpe + (request * t + old) * p;
    from.second_dims = from.second_stride = p;
    from.value = value + (request * n * h + head) * d;
    from.value_dims = d;
    from.value_stride = h * d;
    /* Among the new tokens alone, query i sees key j when j <= n - s + i. */
    float result =
        attend_row(q + row * d, qpe + row * p, from, visible_keys(n, s, query_index, causal, n), scale, query, sum);
    for (long long x = threadIdx.x; x < d; x += THREADS)
        fresh[row * d + x] = sum[x];
    if (threadIdx.x == 0)
        lse[row] = result;
}
