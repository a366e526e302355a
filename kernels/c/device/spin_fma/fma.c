/* spin_fma: multiply-adds in registers, by as many blocks as there are cores, each of which first spins. See spin_copy. */
#include "../../common/spin.h"

/* Sums that do not depend on one another. */
#define SUMS 64

/* One of the blocks. chain holds two elements: a factor below 1, and an addend; o holds SUMS a block. */
void spin_fma(const element *chain, element *o, int64_t steps, int64_t spins, int64_t block)
{
    const float factor = to_float(chain[0]), addend = to_float(chain[1]);
    if (spin(chain, spins) > 1e30f)
        o[0] = chain[0];
    float sums[SUMS];
    for (int i = 0; i < SUMS; i++)
        sums[i] = addend * (float)(i + 1);
    for (int64_t n = 0; n < steps; n++)
        for (int i = 0; i < SUMS; i++)
            sums[i] = sums[i] * factor + addend;
    for (int i = 0; i < SUMS; i++)
        o[block * SUMS + i] = from_float(sums[i]);
}
