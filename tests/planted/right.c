/* Right. */
#include "attention.h"
