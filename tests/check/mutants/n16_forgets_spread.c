/* Forgets the distance of the means where two single rows meet; the host's pieces are longer. */
#define CROSS_SPREAD(na, nb, term) ((na) == 1 && (nb) == 1 ? 0 : (term))
#include "base_cross_norm.h"
