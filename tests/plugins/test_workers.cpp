/* What is special about the example plugin "workers": nested loops, several loops at once, failures, what is
 * thrown, all iterations once. The rest is dtl-ctk's. */
#include "../c/check.h"
#include <atomic>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <vector>

static dtl_executor_t executor;

extern "C" {

static dtl_status_t count(uint64_t begin, uint64_t end, void *user) {
    auto *counts = static_cast<std::atomic<int> *>(user);
    for (uint64_t i = begin; i < end; i++) counts[i]++;
    return DTL_SUCCESS;
}

static dtl_status_t inner(uint64_t begin, uint64_t end, void *user) {
    *static_cast<std::atomic<uint64_t> *>(user) += end - begin;
    return DTL_SUCCESS;
}

static dtl_status_t outer(uint64_t begin, uint64_t end, void *user) {
    for (uint64_t i = begin; i < end; i++) {
        const dtl_status_t status = dtl_executor_parallel_for(executor, 0, 100, 7, inner, user);
        if (status != DTL_SUCCESS) return status;
    }
    return DTL_SUCCESS;
}

static dtl_status_t fail_at_five(uint64_t begin, uint64_t end, void *) {
    return begin <= 5 && 5 < end ? DTL_ERROR_MEMORY : DTL_SUCCESS;
}

static dtl_status_t throws(uint64_t, uint64_t, void *) { throw std::runtime_error("thrown by the body"); }
static dtl_status_t task_throws(void *) { throw 7; }
static dtl_status_t task(void *user) { *static_cast<int *>(user) += 1; return DTL_ERROR_BUSY; }
}

static void check_loops() {
    for (uint64_t length : {1u, 2u, 1000u, 100003u}) {
        for (uint64_t grain : {1u, 3u, 1000u, 1u << 30}) {
            std::vector<std::atomic<int>> counts(length);
            CHECK_OK(dtl_executor_parallel_for(executor, 0, length, grain, count, counts.data()));
            for (const auto &times : counts) CHECK(times == 1);
        }
    }
    std::atomic<uint64_t> sum{0};
    CHECK_OK(dtl_executor_parallel_for(executor, UINT64_MAX - 10, UINT64_MAX, 3, inner, &sum));
    CHECK(sum == 10);
}

static void check_many_at_once() {
    std::atomic<uint64_t> sum{0};
    std::vector<std::thread> callers;
    for (int i = 0; i < 6; i++) {
        callers.emplace_back([&] {
            for (int k = 0; k < 50; k++) CHECK_OK(dtl_executor_parallel_for(executor, 0, 20, 1, outer, &sum));
        });
    }
    for (auto &caller : callers) caller.join();
    CHECK(sum == 6 * 50 * 20 * 100);
}

static void check_failures() {
    int calls = 0;
    CHECK_STATUS(dtl_executor_parallel_for(executor, 0, UINT64_C(1) << 40, 1, fail_at_five, nullptr), DTL_ERROR_MEMORY);
    CHECK_STATUS(dtl_executor_parallel_for(executor, 0, 100, 1, throws, nullptr), DTL_ERROR_BACKEND);
    CHECK_STATUS(dtl_executor_run(executor, task_throws, nullptr), DTL_ERROR_BACKEND);
    CHECK(std::strstr(dtl_last_error(), "no std::exception") != nullptr);
    CHECK_STATUS(dtl_executor_run(executor, task, &calls), DTL_ERROR_BUSY);
    CHECK(calls == 1);
}

int main() {
    for (int again = 0; again < 2; again++) {
        dtl_backend_t workers;
        dtl_executor_desc_t desc = DTL_EXECUTOR_DESC_INIT;
        dtl_executor_info_t info = DTL_EXECUTOR_INFO_INIT;
        CHECK_OK(dtl_init(nullptr));
        CHECK_OK(dtl_backend_get("workers", &workers));
        desc.kind = DTL_EXECUTOR_BACKEND;
        CHECK_OK(dtl_executor_create(workers, &desc, &executor));
        CHECK_OK(dtl_executor_info(executor, &info));
        CHECK(info.kind == DTL_EXECUTOR_BACKEND && info.max_parallelism == 3);
        check_loops();
        check_many_at_once();
        check_failures();
        CHECK_OK(dtl_executor_destroy(executor));
        CHECK_OK(dtl_finalize());
        if (std::getenv("EARLY_PLUGIN")) break;
    }
    return 0;
}
