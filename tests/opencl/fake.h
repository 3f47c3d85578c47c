/* What fake.c is told by tests/c/test_opencl_faults.c, which finds these by dlsym. */
#ifndef DTL_TESTS_FAKE_OPENCL_H
#define DTL_TESTS_FAKE_OPENCL_H

struct fake_opencl {
    /* The call of this name answers this code, so many times (-1: always); "": every call on a queue or event. NULL: none. */
    const char *call;
    int code, times;
    /* Not 0: launches and copies are queued, and end with this code. */
    int ends_with;
    /* The first platform is listed so often. */
    int platforms;
    /* Text is taken for SPIR-V. */
    int takes_il;
    /* Not 0: bytes of __local memory that every kernel has in its source. */
    int local_bytes;
    /* Devices have the extension cl_khr_priority_hints. The last queue of a priority had this one, as the extension names it. */
    int has_priorities, priority;
    /* Objects and memory that were made and not given up. */
    int live;
};

#endif
