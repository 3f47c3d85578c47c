/* wire's slots for registered memory. Messages in host memory need no registration: for them the list of the
 * registrations serves the planted faults, and a limit. Memory of wire's own has to be registered. */
#include "wire.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 64, PAGE = 4096 };

typedef struct reg_t {
    struct reg_t *next; /* the one before it */
    unsigned char *base;
    uint64_t bytes;
    uint64_t known;      /* bytes that the network can access */
    unsigned char *copy; /* of earlier contents, which are sent instead; NULL = none */
} reg_t;

static void *volatile lost; /* what is never freed */

/* The registration in which an address lies. */
static reg_t *reg_of(reg_t *list, const void *address)
{
    const uintptr_t at = (uintptr_t)address;
    while (list != NULL && (at < (uintptr_t)list->base || at - (uintptr_t)list->base >= list->bytes)) {
        list = list->next;
    }
    return list;
}

static reg_t *reg_at(reg_t *list, const void *base)
{
    while (list != NULL && list->base != base) {
        list = list->next;
    }
    return list;
}

static int overlaps(const reg_t *list, const dtl_mem_info_t *info)
{
    const uintptr_t first = (uintptr_t)info->base, end = first + info->size_bytes;
    while (list != NULL && (first >= (uintptr_t)list->base + list->bytes || (uintptr_t)list->base >= end)) {
        list = list->next;
    }
    return list != NULL;
}

/* Keeps the contents of now. */
static void copy_contents(reg_t *reg)
{
    free(reg->copy);
    reg->copy = malloc(reg->bytes + 1);
    if (reg->copy != NULL) {
        memcpy(reg->copy, real_address(reg->base), reg->bytes);
    }
}

static void drop(reg_t *reg)
{
    free(reg->copy);
    free(reg);
}

/* ---- the slots ---- */

static dtl_status_t wire_mem_supports(void *self, void *comm, const dtl_mem_info_t *info, int32_t *out_use)
{
    const wire_t *wire = comm;
    (void)self;
    const int is_ours = info->kind == DTL_MEMORY_DEVICE && is_far(info->base);
    *out_use = info->kind == DTL_MEMORY_HOST || is_ours ? DTL_COMM_MEM_ADDRESS : DTL_COMM_MEM_STAGED;
    if (is_fault("comm.mem_supports.odd_answer")) {
        *out_use = 3;
    }
    if (is_fault("comm.mem_supports.small_is_unknown") && info->size_bytes < PAGE) {
        *out_use = -2;
    }
    if (is_fault("comm.mem_supports.not_while_registered") && reg_of(wire->registered, info->base) != NULL) {
        *out_use = DTL_COMM_MEM_STAGED;
    }
    return DTL_SUCCESS;
}

static dtl_status_t check_room(wire_t *wire, const dtl_mem_info_t *info)
{
    if (wire->registrations >= MOST) {
        wire->registrations += is_fault("comm.mem_register.refusals_count");
        return failed(is_fault("comm.mem_register.wrong_refusal") ? DTL_ERROR_BACKEND : DTL_ERROR_LIMIT,
                      "the table of registrations is full");
    }
    if (is_fault("comm.mem_register.one_at_an_address") && reg_at(wire->registered, info->base) != NULL) {
        return failed(DTL_ERROR_ALREADY_EXISTS, "this address is registered");
    }
    if (is_fault("comm.mem_register.overlap_refused") && overlaps(wire->registered, info)) {
        return failed(DTL_ERROR_INVALID_ARGUMENT, "this range overlaps another one");
    }
    return DTL_SUCCESS;
}

/* What is kept of an ended registration at this address is taken for the new one. */
static void reuse_ended(wire_t *wire, reg_t *reg)
{
    const reg_t *ended = reg_at(wire->ended, reg->base);
    if (is_fault("comm.mem_deregister.size_stays") && ended != NULL) {
        reg->known = ended->known;
    }
    const int is_stale = is_fault("comm.mem_deregister.contents_stay") ||
                         (is_fault("comm.mem_deregister.far_contents_stay") && is_far(reg->base));
    if (is_stale && ended != NULL && ended->bytes == reg->bytes) {
        copy_contents(reg);
    }
}

static dtl_status_t wire_mem_register(void *self, void *comm, const dtl_mem_info_t *info, int32_t dmabuf,
                                      uint64_t dmabuf_offset, void **out_reg)
{
    wire_t *wire = comm;
    (void)self, (void)dmabuf, (void)dmabuf_offset;
    const dtl_status_t status = check_room(wire, info);
    reg_t *reg = status == DTL_SUCCESS ? calloc(1, sizeof *reg) : NULL;
    if (reg == NULL) {
        return status != DTL_SUCCESS ? status : failed(DTL_ERROR_OUT_OF_MEMORY, "no memory for a registration");
    }
    reg->base = info->base;
    reg->bytes = info->size_bytes;
    reg->known = is_fault("comm.mem_register.whole_pages") ? info->size_bytes / PAGE * PAGE : info->size_bytes;
    reuse_ended(wire, reg);
    if (is_fault("comm.mem_register.contents_of_now")) {
        copy_contents(reg);
    }
    if (is_fault("comm.mem_register.leaks")) {
        lost = malloc(1);
    }
    reg->next = wire->registered;
    wire->registered = reg;
    wire->registrations++;
    *out_reg = is_fault("comm.mem_register.null") ? NULL : reg;
    return DTL_SUCCESS;
}

/* Takes a registration out of the list; 0 if it is not there. */
static int end(wire_t *wire, const reg_t *reg)
{
    reg_t **place = &wire->registered, *found;
    while (*place != NULL && *place != reg) {
        place = &(*place)->next;
    }
    found = *place;
    if (found == NULL) {
        return 0;
    }
    *place = found->next;
    wire->registrations--;
    if (strncmp(fault_name(), "comm.mem_deregister.", 20) == 0 && !is_fault("comm.mem_deregister.leaks")) {
        found->next = wire->ended;
        wire->ended = found;
    } else {
        drop(found);
    }
    return 1;
}

static dtl_status_t wire_mem_deregister(void *self, void *comm, void *pointer)
{
    wire_t *wire = comm;
    reg_t *reg = is_fault("comm.mem_deregister.ends_the_latest") ? wire->registered : pointer, *same;
    (void)self;
    if (!end(wire, reg)) {
        return failed(DTL_ERROR_INVALID_ARGUMENT, "this is no registration");
    }
    while (is_fault("comm.mem_deregister.ends_all_of_the_address") &&
           (same = reg_at(wire->registered, wire->ended->base)) != NULL) {
        end(wire, same);
    }
    if (is_fault("comm.mem_deregister.leaks")) {
        lost = malloc(1);
    }
    return DTL_SUCCESS;
}

SLOT(comm, mem_supports, wire_mem_supports,
     (void *self, void *comm, const dtl_mem_info_t *info, int32_t *out_use), (self, comm, info, out_use))
SLOT(comm, mem_register, wire_mem_register,
     (void *self, void *comm, const dtl_mem_info_t *info, int32_t dmabuf, uint64_t dmabuf_offset, void **out_reg),
     (self, comm, info, dmabuf, dmabuf_offset, out_reg))
SLOT(comm, mem_deregister, wire_mem_deregister, (void *self, void *comm, void *reg), (self, comm, reg))

void add_registration(dtl_comm_vtable_t *table)
{
    table->mem_supports = slot_mem_supports;
    table->mem_register = slot_mem_register;
    table->mem_deregister = slot_mem_deregister;
}

/* ---- operations in registered memory ---- */

static dtl_status_t unreachable(const wire_t *wire, const void *buf)
{
    const int is_lost = (is_fault("comm.mem_deregister.ends_the_latest") || is_fault("comm.mem_deregister.memory_is_lost")) &&
                        reg_of(wire->ended, buf) != NULL;
    return is_lost || is_far(buf) ? failed(DTL_ERROR_NATIVE_BACKEND, "the network cannot access this memory") : DTL_SUCCESS;
}

dtl_status_t registered_send(wire_t *wire, op_t *op)
{
    reg_t *const reg = reg_of(wire->registered, op->buf);
    if (reg == NULL) {
        return unreachable(wire, op->buf);
    }
    const uint64_t at = (uint64_t)((unsigned char *)op->buf - reg->base), end_at = at + op->size_bytes;
    if (is_far(op->buf) && end_at > reg->bytes) {
        return failed(DTL_ERROR_NATIVE_BACKEND, "the message leaves the registered memory");
    }
    op->buf = is_fault("comm.mem_register.far_by_the_host") ? op->buf : real_address(op->buf);
    if (is_fault("comm.mem_register.sends_from_the_base") && op->size_bytes <= reg->bytes) {
        op->buf = real_address(reg->base);
    }
    if (reg->copy != NULL && end_at <= reg->bytes) {
        op->buf = reg->copy + at;
    }
    if (end_at > reg->known && end_at <= reg->bytes && op->size_bytes > 0 &&
        own_copy(op, op->buf, op->size_bytes) != NULL) {
        op->own[op->size_bytes - 1] ^= 0xFF;
        op->buf = op->own;
    }
    return DTL_SUCCESS;
}

dtl_status_t registered_target(wire_t *wire, void **buf, uint64_t size_bytes)
{
    reg_t *const reg = reg_of(wire->registered, *buf);
    if (reg == NULL) {
        return is_far(*buf) ? unreachable(wire, *buf) : DTL_SUCCESS;
    }
    const uint64_t left = reg->bytes - (uint64_t)((unsigned char *)*buf - reg->base);
    if (is_far(*buf) && size_bytes > left) {
        return failed(DTL_ERROR_NATIVE_BACKEND, "the message leaves the registered memory");
    }
    *buf = real_address(*buf);
    if (is_fault("comm.mem_register.receives_at_the_base") && size_bytes <= reg->bytes) {
        *buf = real_address(reg->base);
    }
    if (is_fault("comm.mem_register.writes_past") && size_bytes < left) {
        ((unsigned char *)*buf)[size_bytes] ^= 0xFF;
    }
    return DTL_SUCCESS;
}

void *registered_base(wire_t *wire, void *buf)
{
    reg_t *const reg = reg_of(wire->registered, buf);
    return reg == NULL ? NULL : reg->base;
}

void registrations_close(wire_t *wire)
{
    reg_t **const lists[] = {&wire->registered, &wire->ended};
    for (int i = 0; i < 2; i++) {
        while (*lists[i] != NULL) {
            reg_t *const reg = *lists[i];
            *lists[i] = reg->next;
            drop(reg);
        }
    }
}
