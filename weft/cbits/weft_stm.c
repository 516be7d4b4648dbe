/*
 * What a transaction of GHC's STM has read so far: Note [What a transaction has read] in
 * Weft.Internal.Core.Retries.
 *
 * Held against the headers of GHC 9.6.6, of 9.10.3, and of GHC's main branch after 9.12
 * (rts/storage/Closures.h: TRecEntry, StgTRecChunk_, StgTRecHeader_ and StgTSO_.trec are the same in
 * all three); the tests run with the first two. 9.8 and 9.12 lie between versions that are alike. With
 * GHC 9.13 and later, or before 9.6, nothing is read, and GHC's own primitives do all the waiting.
 */

/* The records of transactions are longer in the threaded run-time system. */
#ifndef THREADED_RTS
#define THREADED_RTS
#endif
#include <Rts.h>

#if __GLASGOW_HASKELL__ >= 906 && __GLASGOW_HASKELL__ <= 912

/* Of the outermost record, whether or not the alternative has one of its own. */
static const StgTRecChunk *last_chunk(const StgTSO *tso) {
  const StgTRecHeader *record = tso->trec;
  while ((const StgClosure *)record->enclosing_trec != (const StgClosure *)&stg_NO_TREC_closure)
    record = record->enclosing_trec;
  return record->current_chunk;
}

static int is_chunk(const StgTRecChunk *chunk) {
  return (const StgClosure *)chunk != (const StgClosure *)&stg_END_STM_CHUNK_LIST_closure;
}

/* In the alternative of an orElse: how many variables the transaction around it has read, or -1
   where that cannot be known. */
intptr_t weft_stm_reads(const StgTSO *tso) {
  if (!rts_isThreaded()) return -1;
  intptr_t count = 0;
  for (const StgTRecChunk *c = last_chunk(tso); is_chunk(c); c = c->prev_chunk)
    count += (intptr_t)c->next_entry_idx;
  return count;
}

/* After weft_stm_reads, in the same place: each variable, and then the value it had, into a new
   array of twice that size. */
void weft_stm_copy_reads(const StgTSO *tso, StgClosure **into) {
  StgSmallMutArrPtrs *array = (StgSmallMutArrPtrs *)((W_ *)into - sizeofW(StgSmallMutArrPtrs));
  for (const StgTRecChunk *c = last_chunk(tso); is_chunk(c); c = c->prev_chunk)
    for (StgWord i = 0; i < c->next_entry_idx; i++) {
      *into++ = (StgClosure *)c->entries[i].tvar;
      *into++ = c->entries[i].expected_value;
    }
  /* As each write to an array of pointers does: a collection may have come since it was made. */
  SET_INFO((StgClosure *)array, &stg_SMALL_MUT_ARR_PTRS_DIRTY_info);
}

#else

intptr_t weft_stm_reads(const StgTSO *tso STG_UNUSED) { return -1; }

void weft_stm_copy_reads(const StgTSO *tso STG_UNUSED, StgClosure **into STG_UNUSED) {}

#endif
