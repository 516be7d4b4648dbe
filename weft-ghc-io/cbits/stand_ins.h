// The modules of the replaced functions, as parts of symbols, for C and for Cmm. The options of
// the linker in weft-ghc-io.cabal have the same names. Since GHC 9.10 the package ghc-internal
// has most of base.

#if __GLASGOW_HASKELL__ >= 910
#define EVENT ghczminternal_GHCziInternalziEventziThread
#else
#define EVENT base_GHCziEventziThread
#endif
#define TIMEOUT base_SystemziTimeout
