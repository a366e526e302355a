/* Attention over decompressed keys and values on tensor cores, tile after tile: what the v1 stages of it are made of.
 *
 * A block of HEADS warps takes 16 queries of each of as many heads through all keys, BLOCK_N at a time: copy the tile to
 * shared memory, wait, compute, wait. A warp has one head; the rotary keys, which heads share, are copied once for all.
 * Rows in shared memory are padded by a chunk, so that 8 of them lie in different banks.
 *
 * Before inclusion: D, P, BLOCK_N (keys of a tile, a multiple of 16). */
#ifndef COMMON_DECOMPRESSED_MMA_CUH
#define COMMON_DECOMPRESSED_MMA_CUH

#include "mma.cuh"
#include "softmax.cuh"

#define HEADS 4
#define THREADS (HEADS * 32)
#define BLOCK_M 16
#define ROW (D + CHUNK_ELEMENTS)
#define PE_ROW (P + CHUNK_ELEMENTS)
/* Shared memory of a block: HEADS * BLOCK_M * (ROW + PE_ROW) + 2 * HEADS * BLOCK_N * ROW + BLOCK_N * PE_ROW elements. */

static_assert(D % 16 == 0 && P % 16 == 0, "a warp has pairs of mma tiles");

/* Copies `rows` rows of `dims` elements; the others, up to `total`, become 0. */
template <int dims, int total>
INLINE void copy_rows(element *to, const element *from, long long stride, int rows, int thread, int threads)
{
    constexpr int chunks = dims / CHUNK_ELEMENTS;
    for (int index = thread; index < total * chunks; index += threads) {
        int row = index / chunks, chunk = index % chunks;
        uint4 data = make_uint4(0, 0, 0, 0);
        if (row < rows)
            data = *reinterpret_cast<const uint4 *>(from + row * stride + chunk * CHUNK_ELEMENTS);
        *reinterpret_cast<uint4 *>(to + row * (dims + CHUNK_ELEMENTS) + chunk * CHUNK_ELEMENTS) = data;
    }
}

/* 16 queries, from 16 * row_block on, of HEADS heads of request `request`, from HEADS * head_group on.
 *
 * q [b,h,s,D], qpe [b,h,s,P], key and value [b,n,h,D], kpe [b,t,P], of which the last n rows count. The result goes to
 * `o` [b,h,s,D], of elements or of floats, and its lse (base 2) to lse [b,h,s] unless that is null. */
template <typename output>
INLINE void attend_decompressed(const element *q, const element *qpe, const element *key, const element *value,
                                const element *kpe, output *o, float *lse, long long s, long long t, long long n,
                                long long h, float scale, bool causal, long long request, long long head_group,
                                long long row_block)
{
    extern __shared__ __align__(16) element shared[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, quad = lane % 4;
    element *query_rows = shared + warp * BLOCK_M * (ROW + PE_ROW), *query_pe = query_rows + BLOCK_M * ROW;
    element *key_rows = shared + HEADS * BLOCK_M * (ROW + PE_ROW) + warp * 2 * BLOCK_N * ROW,
            *value_rows = key_rows + BLOCK_N * ROW;
    element *pe_rows = shared + HEADS * BLOCK_M * (ROW + PE_ROW) + HEADS * 2 * BLOCK_N * ROW;

    const long long head = head_group * HEADS + warp, first_row = row_block * BLOCK_M;
    const bool present_head = head < h;
    const int present_rows = (int)(s - first_row < BLOCK_M ? s - first_row : BLOCK_M);
    const long long row_index = (request * h + (present_head ? head : 0)) * s + first_row;
    copy_rows<D, BLOCK_M>(query_rows, q + row_index * D, D, present_rows, lane, 32);
    copy_rows<P, BLOCK_M>(query_pe, qpe + row_index * P, P, present_rows, lane, 32);

    float sum[D / 8][4];
    clear(sum);
    row_state state[2] = {no_keys(), no_keys()};
    int visible[2];
#pragma unroll
    for (int r = 0; r < 2; r++)
        visible[r] = visible_keys(n, s, first_row + group + 8 * r, causal, n);

    const unsigned query_address =
        shared_address(query_rows + row_of_a(lane) * ROW + chunk_of_a(lane) * CHUNK_ELEMENTS);
    const unsigned query_pe_address =
        shared_address(query_pe + row_of_a(lane) * PE_ROW + chunk_of_a(lane) * CHUNK_ELEMENTS);
    const unsigned key_address = shared_address(key_rows + row_of_b(lane) * ROW + chunk_of_b(lane) * CHUNK_ELEMENTS);
    const unsigned pe_address = shared_address(pe_rows + row_of_b(lane) * PE_ROW + chunk_of_b(lane) * CHUNK_ELEMENTS);
    const unsigned value_address =
        shared_address(value_rows + row_of_t(lane) * ROW + chunk_of_t(lane) * CHUNK_ELEMENTS);
    for (long long first_key = 0; first_key < n; first_key += BLOCK_N) {
        const int present = (int)(n - first_key < BLOCK_N ? n - first_key : BLOCK_N);
        const long long token = (request * n + first_key) * h + (present_head ? head : 0);
        __syncthreads();
        copy_rows<D, BLOCK_N>(key_rows, key + token * D, h * D, present, lane, 32);
        copy_rows<D, BLOCK_N>(value_rows, value + token * D, h * D, present, lane, 32);
        copy_rows<P, BLOCK_N>(pe_rows, kpe + (request * t + t - n + first_key) * P, P, present, threadIdx.x, THREADS);
        __syncthreads();

        float score[BLOCK_N / 8][4];
        clear(score);
#pragma unroll
        for (int x = 0; x < D + P; x += 16) {
            unsigned a[4], b[4];
            load_matrix(a, x < D ? query_address + x * 2 : query_pe_address + (x - D) * 2);
#pragma unroll
            for (int i = 0; i < BLOCK_N / 16; i++) {
                load_matrix(b,
                            x < D ? key_address + (i * 16 * ROW + x) * 2 : pe_address + (i * 16 * PE_ROW + x - D) * 2);
                mma(score[2 * i], a, b[0], b[1]);
                mma(score[2 * i + 1], a, b[2], b[3]);
            }
        }
        float2 factor = weigh(score, state, scale * LOG2_E, (int)first_key, visible, true);
        scale_rows(sum, factor.x, factor.y);
#pragma unroll
        for (int step = 0; step < BLOCK_N / 16; step++) {
            unsigned a[4], b[4];
            pack_a(a, score[2 * step], score[2 * step + 1]);
#pragma unroll
            for (int i = 0; i < D / 16; i++) {
                load_transposed(b, value_address + (step * 16 * ROW + i * 16) * 2);
                mma(sum[2 * i], a, b[0], b[1]);
                mma(sum[2 * i + 1], a, b[2], b[3]);
            }
        }
    }

#pragma unroll
    for (int r = 0; r < 2; r++) {
        state[r].total = sum_of_quad(state[r].total);
        int row = group + 8 * r;
        if (row >= present_rows || !present_head)
            continue;
        float factor = reciprocal_total(state[r].total);
        output *to = o + (row_index + row) * D + quad * 2;
#pragma unroll
        for (int i = 0; i < D / 8; i++)
            store_pair(to + i * 8, sum[i][2 * r] * factor, sum[i][2 * r + 1] * factor);
        if (lse && quad == 0)
            lse[row_index + row] = lse_of(state[r]);
    }
}

#endif
