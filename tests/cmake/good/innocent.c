/* Sees nothing of the environments. */
#ifdef FAKE_BLAS
#error "a definition of an environment has leaked"
#endif
int innocent;
