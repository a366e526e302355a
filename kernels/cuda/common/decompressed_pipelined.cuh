/* Attention over decompressed keys and values on tensor cores, pipelined: what the v2 stages of it are made of.
 *
 * With few queries a token this is a matter of memory bandwidth, so that nothing may ever wait but for memory. Every warp
 * is on its own: it takes BLOCK_M queries of one head of one request through the keys of a split, BLOCK_N at a time, and
 * has its own ring of STAGES tiles in shared memory, filled by cp.async STAGES - 1 tiles ahead, across the end of one
 * piece of work into the next. No warp ever waits for another. Neighbouring warps have neighbouring heads, whose keys lie
 * side by side. Tiles are swizzled; queries are kept in registers where a warp has 16 of them, else in shared memory.
 *
 * Before inclusion: D, P, BLOCK_M (16 or 32), BLOCK_N (16 or 32), STAGES, WARPS. */
#ifndef COMMON_DECOMPRESSED_PIPELINED_CUH
#define COMMON_DECOMPRESSED_PIPELINED_CUH

#include "mma.cuh"
#include "softmax.cuh"

#define THREADS (WARPS * 32)
#define TILES_M (BLOCK_M / 16)
#define TILES_N (BLOCK_N / 8)
#define SCORE_STEPS ((D + P) / 16)
#define KEY_BYTES SWIZZLED_ROW(D + P)
#define VALUE_BYTES SWIZZLED_ROW(D)
#define STAGE_BYTES (BLOCK_N * (KEY_BYTES + VALUE_BYTES))
#define QUERIES_IN_REGISTERS (BLOCK_M == 16)
#define QUERY_BYTES (QUERIES_IN_REGISTERS ? 0 : BLOCK_M * KEY_BYTES)
/* Shared memory of a block: WARPS * (QUERY_BYTES + STAGES * STAGE_BYTES). */

static_assert(D % 16 == 0 && P % 16 == 0 && BLOCK_M % 16 == 0 && BLOCK_N % 16 == 0, "");

/* What a grid works on. Keys [first_token, first_token + n) of t; key and value hold these only. */
struct decompressed_work {
    const element *q, *qpe, *key, *value, *kpe;
    long long b, s, t, n, h;
    int splits;
    bool causal;
};

/* One piece of it: some queries of a head of a request, and a range of keys. */
struct piece {
    long long row, key_row, pe_row; /* rows of q, key and kpe where it starts */
    int first_query, split, start, end;
};

INLINE piece piece_of(const decompressed_work &work, int index)
{
    piece it;
    const int row_blocks = ((int)work.s + BLOCK_M - 1) / BLOCK_M, heads = (int)work.h;
    const int head = index % heads, row_block = index / heads % row_blocks,
              split = index / heads / row_blocks % work.splits;
    const long long request = index / heads / row_blocks / work.splits;
    const unsigned tiles = ((unsigned)work.n + BLOCK_N - 1) / BLOCK_N;
    const int end = tiles * (split + 1) / work.splits * BLOCK_N;
    it.split = split;
    it.start = tiles * split / work.splits * BLOCK_N;
    it.end = end < (int)work.n ? end : (int)work.n;
    it.first_query = row_block * BLOCK_M;
    it.row = (request * work.h + head) * work.s + it.first_query;
    it.key_row = (request * work.n + it.start) * work.h + head;
    it.pe_row = request * work.t + work.t - work.n + it.start;
    return it;
}

/* Pieces are dealt out to the warps of the grid in turn. A split leaves its result, normalised by itself, at
 * to [splits,b,h,s,D], of elements or floats, and its lse (base 2) at lse [splits,b,h,s] unless that is null.
 *
 * q [b,h,s,D], qpe [b,h,s,P], key and value [b,n,h,D], kpe [b,t,P], of which the last n rows count. */
template <typename output>
INLINE void attend_decompressed(const decompressed_work &work, output *result, float *lse, float scale)
{
    extern __shared__ __align__(128) char shared[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, quad = lane % 4;
    const unsigned query_base = shared_address(shared) + warp * (QUERY_BYTES + STAGES * STAGE_BYTES);
    const unsigned ring = query_base + QUERY_BYTES;
    const float log2_scale = scale * LOG2_E;
    const int pieces = (int)(work.b * work.h * ((work.s + BLOCK_M - 1) / BLOCK_M) * work.splits),
              step_pieces = gridDim.x * WARPS;

    /* The tile to be copied next, from this lane's first chunk on. */
    int ahead_piece = blockIdx.x * WARPS + warp, ahead_left = 0, ahead_slot = 0;
    const element *ahead_key = work.key, *ahead_value = work.value, *ahead_pe = work.kpe;
    const long long token_stride = work.h * D;
    tile_copy<32, D, BLOCK_N, KEY_BYTES, 0> key_copy(lane);
    tile_copy<32, P, BLOCK_N, KEY_BYTES, D / CHUNK_ELEMENTS> pe_copy(lane);
    tile_copy<32, D, BLOCK_N, VALUE_BYTES, 0> value_copy(lane);
    key_copy.keep_places();
    pe_copy.keep_places();
    value_copy.keep_places();
    const long long first_of_tokens = key_copy.first(token_stride), first_of_pe = pe_copy.first(P);
    auto find_ahead = [&]() {
        while (ahead_piece < pieces) {
            piece next = piece_of(work, ahead_piece);
            if (next.end > next.start) {
                ahead_left = next.end - next.start;
                ahead_key = work.key + next.key_row * D + first_of_tokens;
                ahead_value = work.value + next.key_row * D + first_of_tokens;
                ahead_pe = work.kpe + next.pe_row * P + first_of_pe;
                return;
            }
            ahead_piece += step_pieces;
        }
    };
    auto copy_ahead = [&]() {
        if (ahead_piece < pieces) {
            const unsigned stage = ring + ahead_slot * STAGE_BYTES;
            if (ahead_left >= BLOCK_N) {
                key_copy.begin_all(stage, ahead_key, token_stride);
                pe_copy.begin_all(stage, ahead_pe, P);
                value_copy.begin_all(stage + BLOCK_N * KEY_BYTES, ahead_value, token_stride);
            } else {
                key_copy.begin(stage, ahead_key - first_of_tokens, token_stride, ahead_left);
                pe_copy.begin(stage, ahead_pe - first_of_pe, P, ahead_left);
                value_copy.begin(stage + BLOCK_N * KEY_BYTES, ahead_value - first_of_tokens, token_stride, ahead_left);
            }
            ahead_slot = ahead_slot == STAGES - 1 ? 0 : ahead_slot + 1;
            ahead_key += BLOCK_N * token_stride;
            ahead_value += BLOCK_N * token_stride;
            ahead_pe += BLOCK_N * P;
            ahead_left -= BLOCK_N;
            if (ahead_left <= 0) {
                ahead_piece += step_pieces;
                find_ahead();
            }
        }
        commit_copies();
    };
    find_ahead();
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++)
        copy_ahead();

    /* Where this lane's rows of the tiles begin: chunks are swizzled within groups of 8, so 4 steps of 2 repeat. */
    unsigned query_offset[4], key_offset[4], value_offset[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        query_offset[i] = query_base + swizzled(row_of_a(lane), 2 * i + chunk_of_a(lane), KEY_BYTES);
        key_offset[i] = swizzled(row_of_b(lane), 2 * i + chunk_of_b(lane), KEY_BYTES);
        value_offset[i] = BLOCK_N * KEY_BYTES + swizzled(row_of_t(lane), 2 * i + chunk_of_t(lane), VALUE_BYTES);
        keep(key_offset[i]);
        keep(value_offset[i]);
    }

    int slot = 0;
    for (int index = blockIdx.x * WARPS + warp; index < pieces; index += step_pieces) {
        const piece it = piece_of(work, index);
        const int present_rows = (int)(work.s - it.first_query < BLOCK_M ? work.s - it.first_query : BLOCK_M);

        unsigned query[QUERIES_IN_REGISTERS ? SCORE_STEPS : 1][4];
        if (QUERIES_IN_REGISTERS) {
#pragma unroll
            for (int step = 0; step < SCORE_STEPS; step++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    int row = group + i % 2 * 8, column = step * 16 + i / 2 * 8 + quad * 2;
                    const element *from =
                        column < D ? work.q + (it.row + row) * D + column : work.qpe + (it.row + row) * P + column - D;
                    query[step][i] = row < present_rows ? *reinterpret_cast<const unsigned *>(from) : 0;
                }
        } else {
            /* Written by ordinary stores: the counting of copies under way is not disturbed. */
            constexpr int chunks = (D + P) / CHUNK_ELEMENTS;
            for (int i = lane; i < BLOCK_M * chunks; i += 32) {
                int row = i / chunks, chunk = i % chunks;
                uint4 data = make_uint4(0, 0, 0, 0);
                if (row < present_rows)
                    data = *reinterpret_cast<const uint4 *>(
                        chunk < D / CHUNK_ELEMENTS ? work.q + (it.row + row) * D + chunk * CHUNK_ELEMENTS
                                                   : work.qpe + (it.row + row) * P + chunk * CHUNK_ELEMENTS - D);
                *reinterpret_cast<uint4 *>(shared + (query_base - shared_address(shared)) +
                                           swizzled(row, chunk, KEY_BYTES)) = data;
            }
            __syncwarp();
        }

        float sum[TILES_M][D / 8][4];
        row_state state[TILES_M][2];
        int visible[TILES_M][2], visible_to_all = it.end;
#pragma unroll
        for (int m = 0; m < TILES_M; m++) {
            clear(sum[m]);
#pragma unroll
            for (int r = 0; r < 2; r++) {
                state[m][r] = no_keys();
                visible[m][r] =
                    visible_keys(work.n, work.s, it.first_query + m * 16 + group + 8 * r, work.causal, it.end);
            }
        }
        if (work.causal)
            visible_to_all = visible_keys(work.n, work.s, it.first_query, true, it.end);

        for (int token = it.start; token < it.end; token += BLOCK_N) {
            copy_ahead();
            wait_for_copies<STAGES - 1>();
            /* What all lanes have copied has come. */
            __syncwarp();
            const unsigned stage = ring + slot * STAGE_BYTES;
            slot = slot == STAGES - 1 ? 0 : slot + 1;

            /* With 16 queries even and odd steps are summed apart: half as many products wait for one another. */
            float score[TILES_M][TILES_N][4], odd_score[TILES_M][TILES_N][4];
#pragma unroll
            for (int m = 0; m < TILES_M; m++) {
                clear(score[m]);
                clear(odd_score[m]);
            }
#pragma unroll
            for (int step = 0; step < SCORE_STEPS; step++) {
                unsigned a[TILES_M][4];
                if (!QUERIES_IN_REGISTERS)
#pragma unroll
                    for (int m = 0; m < TILES_M; m++)
                        load_matrix(a[m], query_offset[step % 4] + step / 4 * 128 + m * 16 * KEY_BYTES);
#pragma unroll
                for (int i = 0; i < TILES_N / 2; i++) {
                    unsigned b[4];
                    load_matrix(b, stage + key_offset[step % 4] + step / 4 * 128 + i * 16 * KEY_BYTES);
#pragma unroll
                    for (int m = 0; m < TILES_M; m++) {
                        const unsigned (&queries)[4] =
                            QUERIES_IN_REGISTERS ? query[QUERIES_IN_REGISTERS ? step : 0] : a[m];
                        mma(step % 2 == 0 || TILES_M > 1 ? score[m][2 * i] : odd_score[m][2 * i], queries, b[0], b[1]);
                        mma(step % 2 == 0 || TILES_M > 1 ? score[m][2 * i + 1] : odd_score[m][2 * i + 1], queries, b[2],
                            b[3]);
                    }
                }
            }

#pragma unroll
            for (int m = 0; m < TILES_M; m++)
#pragma unroll
                for (int n = 0; n < TILES_N; n++)
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        score[m][n][i] += odd_score[m][n][i];

            float2 factor[TILES_M];
            bool grown = false;
#pragma unroll
            for (int m = 0; m < TILES_M; m++) {
                factor[m] = weigh(score[m], state[m], log2_scale, token, visible[m], token + BLOCK_N > visible_to_all);
                grown |= factor[m].x != 1.0f || factor[m].y != 1.0f;
            }
            if (__any_sync(~0u, grown))
#pragma unroll
                for (int m = 0; m < TILES_M; m++)
                    scale_rows(sum[m], factor[m].x, factor[m].y);

#pragma unroll
            for (int step = 0; step < BLOCK_N / 16; step++) {
                unsigned weights[TILES_M][4];
#pragma unroll
                for (int m = 0; m < TILES_M; m++)
                    pack_a(weights[m], score[m][2 * step], score[m][2 * step + 1]);
#pragma unroll
                for (int i = 0; i < D / 16; i++) {
                    unsigned b[4];
                    load_transposed(b, stage + value_offset[i % 4] + i / 4 * 128 + step * 16 * VALUE_BYTES);
#pragma unroll
                    for (int m = 0; m < TILES_M; m++) {
                        mma(sum[m][2 * i], weights[m], b[0], b[1]);
                        mma(sum[m][2 * i + 1], weights[m], b[2], b[3]);
                    }
                }
            }
            /* All lanes have done with the tile, whose place the copies begun next take. */
            __syncwarp();
        }

#pragma unroll
        for (int m = 0; m < TILES_M; m++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float total = sum_of_quad(state[m][r].total), factor = reciprocal_total(total);
                const int row = m * 16 + group + 8 * r;
                const long long index_of_row = it.split * work.b * work.h * work.s + it.row + row;
#pragma unroll
                for (int i = 0; i < D / 16; i++)
                    store_row(result + index_of_row * D + i * 16, sum[m][2 * i][2 * r] * factor,
                              sum[m][2 * i][2 * r + 1] * factor, sum[m][2 * i + 1][2 * r] * factor,
                              sum[m][2 * i + 1][2 * r + 1] * factor, row < present_rows);
                if (lse && quad == 0 && row < present_rows)
                    lse[index_of_row] = lse_of({state[m][r].shift, total});
            }
    }
}

#endif
