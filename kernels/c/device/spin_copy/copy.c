/* spin_copy: o = x, by as many blocks as there are cores, each of which first spins.
 *
 * `mlarun calibrate` makes it slower by a known part with `spins`: all blocks run at the same time, so that what each of
 * them does before its copy makes the launch longer by just that. */
#include "../../common/spin.h"

/* One of `blocks` blocks. x and o hold `count` elements, chain two. */
void spin_copy(const element *x, const element *chain, element *o, int64_t count, int64_t spins, int64_t block,
               int64_t blocks)
{
    if (spin(chain, spins) > 1e30f)
        o[0] = chain[0];
    for (int64_t i = count * block / blocks, end = count * (block + 1) / blocks; i < end; i++)
        o[i] = x[i];
}
