// Calls from the destructors that run last: of static and of thread-local objects, made before and
// after the library's first use, with the library open and finalized.
#include "../c/entries.h"
#include <cstdio>
#include <cstdlib>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

static bool finalized;
static struct handles left;

// What can be asked in any order of destruction.
static void use() {
    if (finalized) {
        all_must_fail(&left, DTL_ERROR_INVALID_STATE);
        return;
    }
    dtl_backend_t host;
    void* memory = nullptr;
    dtl_event_t event;
    CHECK_OK(dtl_backend_get("host", &host));
    CHECK_OK(dtl_mem_alloc(host, DTL_MEMORY_HOST, 64, 0, &memory));
    CHECK_OK(dtl_mem_free(host, memory));
    CHECK_STATUS(dtl_mem_alloc(host, 1, 1, 0, &memory), DTL_ERROR_NOT_SUPPORTED);
    CHECK_OK(dtl_event_create(host, 0, &event));
    CHECK_OK(dtl_event_wait(event, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_event_destroy(event));
    CHECK_STATUS(dtl_event_wait(event, DTL_TIMEOUT_INFINITE), DTL_ERROR_INVALID_HANDLE);
}

static int destroyed_in_thread;

struct Late {
    bool in_thread = false;
    ~Late() {
        use();
        if (in_thread) ++destroyed_in_thread;
    }
};

struct Last { // the first to be made is the last to go
    ~Last() {
        use();
        _exit(43); // shows that all destructors have run
    }
};

static void run(bool finalize) {
    static Last last;
    static Late before;
    use();
    static Late after;
    make_handles(&left);
    CHECK_OK(dtl_stream_host_callback(left.stream, e_task, nullptr));
    CHECK_OK(dtl_stream_wait(left.stream, DTL_TIMEOUT_INFINITE));
    std::thread([] {
        static thread_local Late early; // destroyed after the library's own thread-local data
        early.in_thread = true;
        use();
        static thread_local Late late; // and before
        late.in_thread = true;
    }).join();
    CHECK(destroyed_in_thread == 2);
    if (finalize) {
        CHECK_OK(dtl_finalize());
        finalized = true;
    }
    std::exit(0);
}

int main() {
    for (int finalize = 0; finalize < 2; finalize++) {
        const pid_t child = fork();
        if (child == 0) run(finalize != 0);
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 43);
    }
    std::printf("ok\n");
    return 0;
}
