/* A pointer among the code, which the loader must write there. */
#include "base_norm.h"
__asm__(
    ".pushsection .text\n"
    ".balign 8\n"
    ".quad base_pointed_at\n"
    ".popsection\n"
    ".pushsection .data\n"
    "base_pointed_at: .quad 0\n"
    ".popsection\n");
