/* Attention over the latent cache on tensor cores, tile after tile: what the v1 latent stages are made of.
 *
 * The h * s absorbed queries of a request all meet the same tokens, so they are the rows of one matrix. A block of 4
 * warps takes 32 of them through all tokens, BLOCK_N at a time: copy the tile to shared memory, wait, compute, wait. A warp
 * has 16 queries and half the columns of the result; the two warps of the same queries both compute their scores, which
 * therefore stay in registers. Rows in shared memory are padded by a chunk, so that 8 of them lie in different banks.
 *
 * Before inclusion: K, P, BLOCK_N (tokens of a tile, a multiple of 16). */
#ifndef COMMON_LATENT_MMA_CUH
#define COMMON_LATENT_MMA_CUH

#include "mma.cuh"
#include "softmax.cuh"

#define THREADS 128
#define BLOCK_M 32
#define ROW (K + P + CHUNK_ELEMENTS)
#define HALF (K / 2)
/* Shared memory of a block: (BLOCK_M + BLOCK_N) * ROW elements. */

static_assert(K % 32 == 0 && P % 16 == 0, "a warp has pairs of mma tiles");

/* Copies `rows` rows of [first K | second P], of at most `total`; the others become 0. */
template <int total> INLINE void copy_rows(element *to, const element *first, const element *second, int rows)
{
    constexpr int chunks = (K + P) / CHUNK_ELEMENTS, first_chunks = K / CHUNK_ELEMENTS;
    for (int index = threadIdx.x; index < total * chunks; index += THREADS) {
        int row = index / chunks, chunk = index % chunks;
        uint4 data = make_uint4(0, 0, 0, 0);
        if (row < rows)
            data = *reinterpret_cast<const uint4 *>(
                chunk < first_chunks ? first + (long long)row * K + chunk * CHUNK_ELEMENTS
                                     : second + (long long)row * P + (chunk - first_chunks) * CHUNK_ELEMENTS);
        *reinterpret_cast<uint4 *>(to + row * ROW + chunk * CHUNK_ELEMENTS) = data;
    }
}

/* 32 of the h * s queries of request `request`, from 32 * row_block on, over the first `tokens` of t tokens.
 *
 * qc [b,h,s,K], qpe [b,h,s,P], z [b,t,K], kpe [b,t,P], latent [b,h,s,K], lse [b,h,s] (base 2) or null. */
INLINE void attend_latent(const element *qc, const element *qpe, const element *z, const element *kpe, element *latent,
                          float *lse, long long s, long long t, long long tokens, long long h, float scale, bool causal,
                          long long request, long long row_block)
{
    extern __shared__ __align__(16) element shared[];
    element *query = shared, *key = shared + BLOCK_M * ROW;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, quad = lane % 4;
    const int warp_row = warp / 2 * 16, warp_column = warp % 2 * HALF;
    const long long rows = h * s, first_row = row_block * BLOCK_M;
    const int present_rows = (int)(rows - first_row < BLOCK_M ? rows - first_row : BLOCK_M);

    copy_rows<BLOCK_M>(query, qc + (request * rows + first_row) * K, qpe + (request * rows + first_row) * P,
                       present_rows);
    float sum[HALF / 8][4];
    clear(sum);
    row_state state[2] = {no_keys(), no_keys()};
    int visible[2];
#pragma unroll
    for (int r = 0; r < 2; r++)
        visible[r] = visible_keys(t, s, (first_row + warp_row + group + 8 * r) % s, causal, tokens);

    const unsigned query_address =
        shared_address(query + (warp_row + row_of_a(lane)) * ROW + chunk_of_a(lane) * CHUNK_ELEMENTS);
    const unsigned key_address = shared_address(key + row_of_b(lane) * ROW + chunk_of_b(lane) * CHUNK_ELEMENTS);
    const unsigned value_address =
        shared_address(key + row_of_t(lane) * ROW + warp_column + chunk_of_t(lane) * CHUNK_ELEMENTS);
    for (long long token = 0; token < tokens; token += BLOCK_N) {
        __syncthreads();
        copy_rows<BLOCK_N>(key, z + (request * t + token) * K, kpe + (request * t + token) * P,
                           (int)(tokens - token < BLOCK_N ? tokens - token : BLOCK_N));
        __syncthreads();

        float score[BLOCK_N / 8][4];
        clear(score);
#pragma unroll 4
        for (int x = 0; x < K + P; x += 16) {
            unsigned a[4], b[4];
            load_matrix(a, query_address + x * 2);
#pragma unroll
            for (int n = 0; n < BLOCK_N / 16; n++) {
                load_matrix(b, key_address + (n * 16 * ROW + x) * 2);
                mma(score[2 * n], a, b[0], b[1]);
                mma(score[2 * n + 1], a, b[2], b[3]);
            }
        }
        float2 factor = weigh(score, state, scale * LOG2_E, (int)token, visible, true);
        scale_rows(sum, factor.x, factor.y);
#pragma unroll
        for (int step = 0; step < BLOCK_N / 16; step++) {
            unsigned a[4], b[4];
            pack_a(a, score[2 * step], score[2 * step + 1]);
#pragma unroll
            for (int n = 0; n < HALF / 16; n++) {
                load_transposed(b, value_address + (step * 16 * ROW + n * 16) * 2);
                mma(sum[2 * n], a, b[0], b[1]);
                mma(sum[2 * n + 1], a, b[2], b[3]);
            }
        }
    }

#pragma unroll
    for (int r = 0; r < 2; r++) {
        state[r].total = sum_of_quad(state[r].total);
        int row = warp_row + group + 8 * r;
        if (row >= present_rows)
            continue;
        float factor = reciprocal_total(state[r].total);
        element *to = latent + (request * rows + first_row + row) * K + warp_column + quad * 2;
#pragma unroll
        for (int n = 0; n < HALF / 8; n++)
            *reinterpret_cast<unsigned *>(to + n * 8) =
                r == 0 ? pack(sum[n][0] * factor, sum[n][1] * factor) : pack(sum[n][2] * factor, sum[n][3] * factor);
        if (lse && warp_column == 0 && quad == 0)
            lse[request * rows + first_row + row] = lse_of(state[r]);
    }
}

#endif
