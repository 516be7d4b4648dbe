#include <HsFFI.h>
#if defined(__cplusplus)
extern "C" {
#endif
extern void zdmainzdWeftziInternalziMonitorzdWeftzziInternalzziMonitorzuwrapCarry(StgStablePtr the_stableptr, HsInt32 a1, HsInt64 a2);
#if defined(__cplusplus)
}
#endif

