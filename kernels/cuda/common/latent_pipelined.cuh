/* Attention over the latent cache on tensor cores, pipelined: what the v2 latent stages are made of.
 *
 * The h * s absorbed queries of a request all meet the same tokens, so they are the rows of one matrix. A block takes
 * BLOCK_M of them through the tokens of a split, BLOCK_N at a time. A tile of tokens [BLOCK_N][K + P] is loaded once, by
 * cp.async STAGES - 1 tiles ahead, and serves as keys and (its first K columns) as values.
 *
 * The accumulators, BLOCK_M x K floats, fill the registers of 8 warps. Two teams of 4 warps have half of the queries each
 * and go through the same tiles, the second team behind the first, so that one multiplies while the other takes its
 * softmax. They never wait for the whole block, only, by named barriers, the second team for a tile to have come and the
 * first, which also does all the copying, for a place in the ring to be free.
 *
 * What limits the kernel then is reading shared memory for the mma, and within a team each product is dealt out so that a
 * warp reads little for what it computes:
 *   - scores: SCORE_K x SCORE_M x (4 / SCORE_K / SCORE_M) warps along the dimensions, the queries and the tokens. Every
 *     SCORE_K'th group of 16 dimensions is a warp's own, and the partial sums meet in shared memory.
 *   - softmax: a warp takes whole rows from there, so their maxima need no further exchange. It writes the weights,
 *     rounded to elements, to shared memory.
 *   - values: a warp takes K / 4 columns for all rows of its team.
 *
 * Before inclusion: K, P, BLOCK_M (32 or 64), BLOCK_N (a multiple of 16), STAGES, SCORE_K (1, 2 or 4), SCORE_M. */
#ifndef COMMON_LATENT_PIPELINED_CUH
#define COMMON_LATENT_PIPELINED_CUH

#include "mma.cuh"
#include "softmax.cuh"

#define THREADS 256
#define TEAM_THREADS 128
#define TEAM_WARPS 4
#define TEAM_M (BLOCK_M / 2)
#define SCORE_N (TEAM_WARPS / SCORE_K / SCORE_M)

/* Scores of a warp: m x n tiles of mma. */
#define SCORE_TILES_M (TEAM_M / SCORE_M / 16)
#define SCORE_TILES_N (BLOCK_N / SCORE_N / 8)
#define SCORE_STEPS ((K + P) / 16 / SCORE_K)
/* Values of a warp: pairs of n tiles, 16 columns. */
#define VALUE_TILES_M (TEAM_M / 16)
#define VALUE_PAIRS (K / TEAM_WARPS / 16)
/* Softmax: rows of a warp and lanes of a row; each lane has pairs of columns. */
#define SOFTMAX_ROWS (TEAM_M / TEAM_WARPS)
#define SOFTMAX_LANES (32 / SOFTMAX_ROWS)
#define SOFTMAX_PAIRS (BLOCK_N / 2 / SOFTMAX_LANES)

static_assert(SCORE_K == 1 || SCORE_K == 2 || SCORE_K == 4, "a warp's chunks repeat every 8");
static_assert(SCORE_K * SCORE_M * SCORE_N == TEAM_WARPS && TEAM_M % (16 * SCORE_M) == 0 && BLOCK_N % (8 * SCORE_N) == 0,
              "");
static_assert((K + P) % (16 * SCORE_K) == 0 && P % 8 == 0 && K % (16 * TEAM_WARPS) == 0, "");
static_assert(BLOCK_M == 32 || BLOCK_M == 64, "a softmax row belongs to 4 or 8 lanes");
static_assert(BLOCK_N % (2 * SOFTMAX_LANES) == 0 && STAGES >= 2, "");

#define ROW_BYTES SWIZZLED_ROW(K + P)
/* Rows of scores and of weights are padded so that neighbouring rows lie in other banks. */
#define SCORE_STRIDE (BLOCK_N + 8)
#define WEIGHT_STRIDE (BLOCK_N + 8)

#define QUERY_BYTES (BLOCK_M * ROW_BYTES)
#define STAGE_BYTES (BLOCK_N * ROW_BYTES)
#define SCORE_BYTES (SCORE_K * BLOCK_M * SCORE_STRIDE * 4)
#define WEIGHT_BYTES (BLOCK_M * WEIGHT_STRIDE * 2)
/* Shared memory of a block: QUERY_BYTES + STAGES * STAGE_BYTES + SCORE_BYTES + WEIGHT_BYTES + BLOCK_M * 4. */

/* Named barriers: one of each team; that a tile has come and that a place is free, of even and of odd tiles; and that the
 * first team has its first scores. */
enum { TEAM_BARRIER = 1, TILE_BARRIER = 3, FREE_BARRIER = 5, ORDER_BARRIER = 7 };

/* Waits until `threads` threads have come to the barrier. */
INLINE void barrier_wait(int barrier, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

/* Comes to the barrier and goes on. */
INLINE void barrier_pass(int barrier, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

/* Waits, and says whether `value` held for any of the threads. */
INLINE bool barrier_any(int barrier, int threads, bool value)
{
    unsigned any;
    asm volatile(
        "{.reg .pred mine, any; setp.ne.u32 mine, %1, 0; bar.red.or.pred any, %2, %3, mine; selp.u32 %0, 1, 0, any;}"
        : "=r"(any)
        : "r"((unsigned)value), "r"(barrier), "r"(threads)
        : "memory");
    return any != 0;
}

/* The work of a whole grid of any size: `splits` parts of the first `tokens` of the t tokens, for all queries.
 *
 * qc [b,h,s,K], qpe [b,h,s,P], z [b,t,K], kpe [b,t,P], part [splits,b,h,s,K] (each normalised by itself, 0 where no token
 * is visible), lse [splits,b,h,s] (base 2). */
INLINE void attend_latent(const element *qc, const element *qpe, const element *z, const element *kpe, element *part,
                          float *lse, long long b, long long s, long long t, long long tokens, long long h, float scale,
                          bool causal, int splits)
{
    extern __shared__ __align__(128) char shared[];
    /* Warp and thread count within the team. */
    const int team = threadIdx.x / TEAM_THREADS, warp = threadIdx.x / 32 % TEAM_WARPS, lane = threadIdx.x % 32;
    const int group = lane / 4, quad = lane % 4;
    const bool first_team = team == 0;
    float *scores = reinterpret_cast<float *>(shared + QUERY_BYTES + STAGES * STAGE_BYTES) + team * (SCORE_BYTES / 8);
    unsigned *weights = reinterpret_cast<unsigned *>(shared + QUERY_BYTES + STAGES * STAGE_BYTES + SCORE_BYTES) +
                        team * (WEIGHT_BYTES / 8);
    float *factors =
        reinterpret_cast<float *>(shared + QUERY_BYTES + STAGES * STAGE_BYTES + SCORE_BYTES + WEIGHT_BYTES) +
        team * TEAM_M;
    const unsigned query_base = shared_address(shared), stage_base = query_base + QUERY_BYTES;
    const float log2_scale = scale * LOG2_E;

    /* Scores: this warp's dimensions, queries and tokens. Chunks repeat every 8, so few offsets serve all steps. */
    const int score_k = warp % SCORE_K, score_m = warp / SCORE_K % SCORE_M, score_n = warp / SCORE_K / SCORE_M;
    constexpr int offsets = 4 / SCORE_K;
    unsigned query_offset[offsets], key_offset[offsets];
#pragma unroll
    for (int i = 0; i < offsets; i++) {
        const int chunk = 2 * (SCORE_K * i + score_k);
        query_offset[i] = query_base + swizzled(team * TEAM_M + score_m * SCORE_TILES_M * 16 + row_of_a(lane),
                                                chunk + chunk_of_a(lane), ROW_BYTES);
        key_offset[i] = swizzled(score_n * SCORE_TILES_N * 8 + row_of_b(lane), chunk + chunk_of_b(lane), ROW_BYTES);
    }
    /* Values: this warp's columns, likewise. */
    unsigned value_offset[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        value_offset[i] = swizzled(row_of_t(lane), 2 * (warp * VALUE_PAIRS + i) + chunk_of_t(lane), ROW_BYTES);
    const unsigned weight_offset =
        shared_address(weights) + row_of_a(lane) * WEIGHT_STRIDE * 2 + chunk_of_a(lane) * CHUNK;
    /* Softmax: this lane's row and first column. */
    const int softmax_row = warp * SOFTMAX_ROWS + lane / SOFTMAX_LANES, softmax_column = lane % SOFTMAX_LANES * 2;
    const tile_copy<TEAM_THREADS, K, BLOCK_N, ROW_BYTES, 0> z_copy(threadIdx.x);
    const tile_copy<TEAM_THREADS, P, BLOCK_N, ROW_BYTES, K / CHUNK_ELEMENTS> kpe_copy(threadIdx.x);

    const long long rows = h * s;
    const int row_blocks = (int)((rows + BLOCK_M - 1) / BLOCK_M), items = (int)b * splits * row_blocks;
    for (int item = blockIdx.x; item < items; item += gridDim.x) {
        const int row_block = item % row_blocks, split = item / row_blocks % splits,
                  request = item / row_blocks / splits;
        const long long first_row = request * rows + (long long)row_block * BLOCK_M;
        const int present_rows =
            (int)(rows - (long long)row_block * BLOCK_M < BLOCK_M ? rows - (long long)row_block * BLOCK_M : BLOCK_M);
        const int all_tiles = (int)((tokens + BLOCK_N - 1) / BLOCK_N);
        const int first_tile = (int)((long long)all_tiles * split / splits);
        const int tiles = (int)((long long)all_tiles * (split + 1) / splits) - first_tile;
        const int start = first_tile * BLOCK_N;
        const int end =
            (int)(tokens - start < (long long)tiles * BLOCK_N ? tokens : start + (long long)tiles * BLOCK_N);
        const element *z_ahead = z + (request * t + start) * K, *kpe_ahead = kpe + (request * t + start) * P;
        int ahead = 0, ahead_slot = 0;
        auto copy_ahead = [&]() {
            if (ahead < tiles) {
                const unsigned stage = stage_base + ahead_slot * STAGE_BYTES;
                const int left = end - start - ahead * BLOCK_N;
                if (left >= BLOCK_N) {
                    z_copy.begin_all(stage, z_ahead + z_copy.first(K), K);
                    kpe_copy.begin_all(stage, kpe_ahead + kpe_copy.first(P), P);
                } else {
                    z_copy.begin(stage, z_ahead, K, left);
                    kpe_copy.begin(stage, kpe_ahead, P, left);
                }
                z_ahead += BLOCK_N * K;
                kpe_ahead += BLOCK_N * P;
                ahead_slot = ahead_slot == STAGES - 1 ? 0 : ahead_slot + 1;
                ahead++;
            }
            commit_copies();
        };

        /* All have done with the item before; all copy the queries, and the first team the first tiles. */
        __syncthreads();
        tile_copy<THREADS, K, BLOCK_M, ROW_BYTES, 0>(threadIdx.x)
            .begin(query_base, qc + first_row * K, K, present_rows);
        tile_copy<THREADS, P, BLOCK_M, ROW_BYTES, K / CHUNK_ELEMENTS>(threadIdx.x)
            .begin(query_base, qpe + first_row * P, P, present_rows);
        commit_copies();
        if (first_team)
#pragma unroll 1
            for (int i = 0; i < STAGES - 1; i++)
                copy_ahead();
        if (first_team)
            wait_for_copies<STAGES - 1>();
        else
            wait_for_copies<0>();
        __syncthreads();

        float sum[VALUE_TILES_M][2 * VALUE_PAIRS][4];
#pragma unroll
        for (int m = 0; m < VALUE_TILES_M; m++)
            clear(sum[m]);
        row_state state = no_keys();
        const int visible =
            visible_keys(t, s, ((long long)row_block * BLOCK_M + team * TEAM_M + softmax_row) % s, causal, end);
        const int visible_to_all = visible_keys(t, s, 0, causal, end);

        int slot = 0;
        for (int tile = 0; tile < tiles; tile++) {
            const int token = start + tile * BLOCK_N;
            if (first_team) {
                wait_for_copies<STAGES - 2>();
                barrier_wait(TEAM_BARRIER, TEAM_THREADS);
                barrier_pass(TILE_BARRIER + tile % 2, THREADS);
            } else {
                barrier_wait(TILE_BARRIER + tile % 2, THREADS);
                if (tile == 0)
                    barrier_wait(ORDER_BARRIER, THREADS);
            }
            const unsigned stage = stage_base + slot * STAGE_BYTES;
            slot = slot == STAGES - 1 ? 0 : slot + 1;

            float score[SCORE_TILES_M][SCORE_TILES_N][4];
#pragma unroll
            for (int m = 0; m < SCORE_TILES_M; m++)
                clear(score[m]);
#pragma unroll
            for (int step = 0; step < SCORE_STEPS; step++) {
                unsigned query[SCORE_TILES_M][4], key[(SCORE_TILES_N + 1) / 2][4];
#pragma unroll
                for (int m = 0; m < SCORE_TILES_M; m++)
                    load_matrix(query[m], query_offset[step % offsets] + step / offsets * 128 + m * 16 * ROW_BYTES);
#pragma unroll
                for (int n = 0; n < SCORE_TILES_N / 2; n++)
                    load_matrix(key[n], stage + key_offset[step % offsets] + step / offsets * 128 + n * 16 * ROW_BYTES);
                if (SCORE_TILES_N % 2 == 1) {
                    unsigned half[2];
                    load_half_matrix(half, stage + key_offset[step % offsets] + step / offsets * 128 +
                                               SCORE_TILES_N / 2 * 16 * ROW_BYTES);
                    key[SCORE_TILES_N / 2][0] = half[0];
                    key[SCORE_TILES_N / 2][1] = half[1];
                }
#pragma unroll
                for (int n = 0; n < SCORE_TILES_N; n++)
#pragma unroll
                    for (int m = 0; m < SCORE_TILES_M; m++)
                        mma(score[m][n], query[m], key[n / 2][n % 2 * 2], key[n / 2][n % 2 * 2 + 1]);
            }
#pragma unroll
            for (int m = 0; m < SCORE_TILES_M; m++)
#pragma unroll
                for (int n = 0; n < SCORE_TILES_N; n++) {
                    float *to = scores +
                                (score_k * TEAM_M + (score_m * SCORE_TILES_M + m) * 16 + group) * SCORE_STRIDE +
                                (score_n * SCORE_TILES_N + n) * 8 + quad * 2;
                    *reinterpret_cast<float2 *>(to) = make_float2(score[m][n][0], score[m][n][1]);
                    *reinterpret_cast<float2 *>(to + 8 * SCORE_STRIDE) = make_float2(score[m][n][2], score[m][n][3]);
                }
            if (first_team) {
                /* The tile before is done with, here since this one began, by the other team now; its place is filled. */
                if (tile == 0)
                    barrier_pass(ORDER_BARRIER, THREADS);
                else
                    barrier_wait(FREE_BARRIER + (tile - 1) % 2, THREADS);
                copy_ahead();
            }
            barrier_wait(TEAM_BARRIER + team, TEAM_THREADS);

            float2 weight[SOFTMAX_PAIRS];
            float largest = NO_SCORE;
#pragma unroll
            for (int i = 0; i < SOFTMAX_PAIRS; i++) {
                const float *from = scores + softmax_row * SCORE_STRIDE + softmax_column + i * 2 * SOFTMAX_LANES;
                weight[i] = *reinterpret_cast<const float2 *>(from);
#pragma unroll
                for (int part_k = 1; part_k < SCORE_K; part_k++) {
                    float2 more = *reinterpret_cast<const float2 *>(from + part_k * TEAM_M * SCORE_STRIDE);
                    weight[i].x += more.x;
                    weight[i].y += more.y;
                }
            }
            if (token + BLOCK_N > visible_to_all)
#pragma unroll
                for (int i = 0; i < SOFTMAX_PAIRS; i++) {
                    const int column = token + softmax_column + i * 2 * SOFTMAX_LANES;
                    weight[i].x = column < visible ? weight[i].x : NO_SCORE;
                    weight[i].y = column + 1 < visible ? weight[i].y : NO_SCORE;
                }
#pragma unroll
            for (int i = 0; i < SOFTMAX_PAIRS; i++)
                largest = fmaxf(largest, fmaxf(weight[i].x, weight[i].y));
#pragma unroll
            for (int other = 1; other < SOFTMAX_LANES; other *= 2)
                largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, other));
            const float factor = follow(state, largest * log2_scale), shift = subtrahend(state);
#pragma unroll
            for (int i = 0; i < SOFTMAX_PAIRS; i++) {
                weight[i].x = power_of_two(fmaf(weight[i].x, log2_scale, -shift));
                weight[i].y = power_of_two(fmaf(weight[i].y, log2_scale, -shift));
                state.total += weight[i].x + weight[i].y;
                weights[(softmax_row * WEIGHT_STRIDE + softmax_column) / 2 + i * SOFTMAX_LANES] =
                    pack(weight[i].x, weight[i].y);
            }
            if (lane % SOFTMAX_LANES == 0)
                factors[softmax_row] = factor;
            if (barrier_any(TEAM_BARRIER + team, TEAM_THREADS, factor != 1.0f)) {
#pragma unroll
                for (int m = 0; m < VALUE_TILES_M; m++)
                    scale_rows(sum[m], factors[m * 16 + group], factors[m * 16 + group + 8]);
            }

#pragma unroll
            for (int step = 0; step < BLOCK_N / 16; step++) {
                unsigned row_weights[VALUE_TILES_M][4];
#pragma unroll
                for (int m = 0; m < VALUE_TILES_M; m++)
                    load_matrix(row_weights[m], weight_offset + m * 16 * WEIGHT_STRIDE * 2 + step * 32);
#pragma unroll
                for (int n = 0; n < VALUE_PAIRS; n++) {
                    unsigned value[4];
                    load_transposed(value, stage + value_offset[n % 4] + n / 4 * 128 + step * 16 * ROW_BYTES);
#pragma unroll
                    for (int m = 0; m < VALUE_TILES_M; m++) {
                        mma(sum[m][2 * n], row_weights[m], value[0], value[1]);
                        mma(sum[m][2 * n + 1], row_weights[m], value[2], value[3]);
                    }
                }
            }
            if (!first_team && tile < tiles - 1)
                barrier_pass(FREE_BARRIER + tile % 2, THREADS);
        }

#pragma unroll
        for (int other = 1; other < SOFTMAX_LANES; other *= 2)
            state.total += __shfl_xor_sync(~0u, state.total, other);
        barrier_wait(TEAM_BARRIER + team, TEAM_THREADS);
        if (lane % SOFTMAX_LANES == 0) {
            factors[softmax_row] = reciprocal_total(state.total);
            if (team * TEAM_M + softmax_row < present_rows)
                lse[split * b * rows + first_row + team * TEAM_M + softmax_row] = lse_of(state);
        }
        barrier_wait(TEAM_BARRIER + team, TEAM_THREADS);
        element *to = part + (split * b * rows + first_row + team * TEAM_M) * K + warp * VALUE_PAIRS * 16;
#pragma unroll
        for (int m = 0; m < VALUE_TILES_M; m++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int row = m * 16 + half * 8 + group;
                const float factor = factors[row];
#pragma unroll
                for (int n = 0; n < VALUE_PAIRS; n++)
                    store_row(to + (long long)row * K + n * 16, sum[m][2 * n][2 * half] * factor,
                              sum[m][2 * n][2 * half + 1] * factor, sum[m][2 * n + 1][2 * half] * factor,
                              sum[m][2 * n + 1][2 * half + 1] * factor, team * TEAM_M + row < present_rows);
            }
    }
}

#endif
