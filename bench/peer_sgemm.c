/* SPDX-License-Identifier: Apache-2.0 */
/* The Fortran BLAS functions that PyTorch's f32 products call, implemented by oneDNN. To be
   preloaded: if libblas.so.3 is the reference implementation, or one that takes this processor
   for an older one, PyTorch is many times slower than it could be, and a comparison would be
   meaningless.

     cc -O2 -shared -fPIC peer_sgemm.c -o libpeer_sgemm.so -ldnnl
     LD_PRELOAD=./libpeer_sgemm.so python3 ...                                                  */
#include <dnnl.h>
#include <stdio.h>
#include <stdlib.h>

/* A column-major C is a row-major C^T, and C^T = alpha op(B)^T op(A)^T + beta C^T. */
void sgemm_(const char* transa, const char* transb, const int* m, const int* n, const int* k,
            const float* alpha, const float* a, const int* lda, const float* b, const int* ldb,
            const float* beta, float* c, const int* ldc) {
  /* PyTorch passes 'n', 't' and, though nothing is complex, 'c'. */
  const char ta = *transa == 'n' || *transa == 'N' ? 'N' : 'T';
  const char tb = *transb == 'n' || *transb == 'N' ? 'N' : 'T';
  if (*m == 0 || *n == 0) return;
  const dnnl_status_t status =
      dnnl_sgemm(tb, ta, *n, *m, *k, *alpha, b, *ldb, a, *lda, *beta, c, *ldc);
  if (status != dnnl_success) {
    fprintf(stderr, "dnnl_sgemm: status %d\n", (int)status);
    abort();
  }
}
