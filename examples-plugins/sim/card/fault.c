/* Faults on request, which programs use to test how they handle failures. */
#include "card.h"

#include <stdlib.h>
#include <string.h>

static const char *const operations[] = {"alloc", "copy", "fill", "launch", "compile", "lost"};
enum { OPERATIONS = sizeof operations / sizeof *operations, LOST = OPERATIONS - 1 };

static unsigned long failing[OPERATIONS]; /* number of the call that fails, from 1; 0 = none */
static unsigned long calls[OPERATIONS];
static int is_lost[CARD_DEVICES];

static int index_of(const char *operation, size_t length)
{
    for (int i = 0; i < OPERATIONS; i++) {
        if (strlen(operations[i]) == length && strncmp(operations[i], operation,
                                                       length) == 0) return i;
    }
    return -1;
}

int card_faults_read(const char *text)
{
    memset(failing, 0, sizeof failing);
    memset(calls, 0, sizeof calls);
    memset(is_lost, 0, sizeof is_lost);
    while (text != NULL && *text != '\0') {
        const char *colon = strchr(text, ':');
        const int operation = colon == NULL ? -1 : index_of(text, (size_t)(colon - text));
        char *end = NULL;
        const unsigned long number = colon == NULL ? 0 : strtoul(colon + 1, &end, 10);
        if (operation < 0 || number == 0 || (*end != ',' && *end != '\0')) return -1;
        failing[operation] = number;
        text = *end == ',' ? end + 1 : end;
    }
    return 0;
}

static int hits(int operation)
{
    return failing[operation] != 0 &&
           __atomic_add_fetch(&calls[operation], 1, __ATOMIC_RELAXED) == failing[operation];
}

int card_fails(const char *operation)
{
    return hits(index_of(operation, strlen(operation)));
}

int card_is_lost(int32_t device)
{
    return __atomic_load_n(&is_lost[device], __ATOMIC_RELAXED);
}

int card_loses(int32_t device)
{
    if (hits(LOST)) __atomic_store_n(&is_lost[device], 1, __ATOMIC_RELAXED);
    return card_is_lost(device);
}
