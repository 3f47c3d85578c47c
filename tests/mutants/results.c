/* wire: what the library is told of completed operations, with the planted faults of it. */
#include "wire.h"

#include <string.h>

/* What the library is told of a completed operation. */
void report(wire_t *wire, op_t *op, dtl_comm_done_t *result)
{
    wire->ends++;
    if (!op->is_receive) {
        return;
    }
    if (op->own != NULL && op->size_bytes > 0) {
        const uint64_t size = result->size_bytes < op->size_bytes ? result->size_bytes : op->size_bytes;
        const int is_moved = is_fault("comm.irecv.wrong_place") && size > 8192;
        const int is_less = is_moved || (is_fault("comm.irecv.last_byte_missing") && size > 8192);
        const uint64_t missing = is_fault("comm.test.before_the_bytes") ? size / 2 : (uint64_t)is_less;
        memcpy((unsigned char *)op->buf + is_moved, op->own, size - missing);
    }
    if (is_fault("comm.irecv.writes_past") && op->match_word != 0) {
        ((unsigned char *)op->buf)[op->size_bytes] ^= 0xFF;
    }
    if (is_fault("comm.test.wrong_source")) {
        result->source = (result->source + 1) % wire->size;
    }
    if (is_fault("comm.test.source_is_itself")) {
        result->source = wire->rank;
    }
    if (is_fault("comm.test.source_out_of_range")) {
        result->source = 99;
    }
    if (is_fault("comm.test.wrong_size") && result->size_bytes > 0) {
        result->size_bytes -= 1;
    }
    if (is_fault("comm.test.size_of_the_room")) {
        result->size_bytes = op->size_bytes;
    }
    if (is_fault("comm.test.wrong_word")) {
        result->match_word ^= 1;
    }
    if (is_fault("comm.test.hides_truncation") && result->status == DTL_ERROR_TRUNCATED) {
        result->status = DTL_SUCCESS;
    }
    if (is_fault("comm.test.always_truncated") && wire->ends > CALM) {
        result->status = DTL_ERROR_TRUNCATED;
    }
    if (is_fault("comm.test.unknown_result") && wire->ends > CALM) {
        result->status = ODD_STATUS;
    }
}

/* Operations that are over before the base says so. */
int is_over_early(wire_t *wire, op_t *op, dtl_comm_done_t *result)
{
    if (is_fault("comm.test.twice") && op->is_receive && op->asked == 0 && op->previous.size_bytes > 0 &&
        wire->ends > CALM) {
        *result = op->previous;
        return 1;
    }
    if (is_fault("comm.test.done_early") && op->is_receive && op->match_word != 0) {
        result->source = op->peer;
        result->match_word = op->match_word;
        result->size_bytes = op->size_bytes;
        return 1;
    }
    return (is_fault("comm.test.send_done_early") && !op->is_receive) || (op->is_held && wire->queued == 0);
}
