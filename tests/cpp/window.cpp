// dtl.hpp: windows. Operations in every form, locks and their ends, ownership, failures; alone, with several processes
// and with ranks that are threads.
#include "../c/check.h"

#include <dtl.hpp>

#include "thrown.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <unistd.h>
#include <vector>

using std::vector;

static_assert(!std::is_copy_constructible_v<dtl::window<int>> && !std::is_copy_assignable_v<dtl::window<int>>);
static_assert(std::is_nothrow_move_constructible_v<dtl::window<int>> &&
              std::is_nothrow_move_assignable_v<dtl::window<int>>);
static_assert(!std::is_copy_constructible_v<dtl::window_lock> &&
              std::is_nothrow_move_constructible_v<dtl::window_lock>);
static_assert(std::is_trivially_copyable_v<dtl::window_ref<int>>);
static_assert(!std::is_constructible_v<dtl::window<int>, dtl::comm_ref, vector<float> &>, "elements of another type");
static_assert(!std::is_constructible_v<dtl::window<int>, dtl::comm_ref, const vector<int> &>, "nobody may write there");

// For moves onto itself, which compilers warn of.
template <class T> static T &itself(T &object) { return object; }

struct place {
    int rank, size, next, previous;
    explicit place(dtl::comm_ref comm)
        : rank(comm.rank()), size(comm.size()), next((rank + 1) % size), previous((rank + size - 1) % size)
    {
    }
};

struct particle {
    double position[3];
    int32_t id;
};

// Between fences; over memory of the program's, of elements with and without a dtype; parts of different sizes.
static void fences(dtl::comm_ref comm)
{
    const place here(comm);
    vector<int64_t> mine(static_cast<size_t>(here.rank) + 2, -1), out{10 * here.rank, 10 * here.rank + 1}, in(2);
    dtl::window window(comm, mine);
    CHECK(window.data() == mine.data() && window.size() == mine.size() && window.end() - window.begin() == here.rank + 2);
    CHECK(window->info(here.next).size_bytes == 8 * (static_cast<uint64_t>(here.next) + 2));
    CHECK(window->info(here.rank).base == mine.data() && window->info(0).disp_unit == 8);
    window->fence();
    window->put(out, here.next, 0);
    window->fence();
    CHECK(mine[0] == 10 * here.previous && mine[1] == mine[0] + 1 && (here.rank == 0 || mine[2] == -1));
    window->get(in, here.next, 0);
    const auto again = dtl::window_ref<int64_t>(window.get()); // a view of it
    int64_t second = 0;
    again.rget(&second, 1, here.next, 1).wait(); // between fences too
    window->accumulate(out, here.rank, 0, DTL_OP_MAX);
    window->fence();
    const int before = 10 * here.rank, after = 10 * std::max(here.rank, here.next); // the MAX there
    CHECK((in[0] == before || in[0] == after) && (second == before + 1 || second == after + 1));
    CHECK(mine[0] == 10 * std::max(here.rank, here.previous));
    window.destroy();

    std::array<particle, 3> particles{};
    const particle sent{{1, 2, 3}, here.rank};
    dtl::window<particle> records(comm, particles);
    records->fence();
    records->put(&sent, 1, here.next, 2);
    records->fence();
    CHECK(records[2].id == here.previous && records[2].position[2] == 3 && records[1].id == 0);
    // One member, atomically: a type of its own; displacements stay those of the elements.
    const double half = 0.5;
    records->accumulate<double>(&half, 1, here.next, 2, DTL_OP_SUM);
    records->fence();
    CHECK(records[2].position[0] == 1.5);
}

// Counters that all ranks fetch from at once: every number is given once.
static void counters(dtl::comm_ref comm)
{
    const place here(comm);
    constexpr int draws = 200;
    const dtl::window<int64_t> counter(comm, here.rank == 0 ? 2 : 0); // rank 0's; zeroed
    CHECK(counter.size() == (here.rank == 0 ? 2U : 0U) && (counter.data() == nullptr) == (here.rank != 0));
    CHECK(here.rank != 0 || (counter[0] == 0 && counter[1] == 0));
    comm.barrier();
    vector<int64_t> seen(static_cast<size_t>(draws) * here.size);
    {
        const auto lock = counter->lock_all();
        for (int i = 0; i < draws; i++) {
            seen.at(static_cast<size_t>(counter->fetch_op(1, 0, 0, DTL_OP_SUM)))++;
        }
        const int64_t one = 1;
        int64_t before = -1;
        counter->fetch_op(&one, &before, 0, 1, DTL_OP_SUM);
        counter->flush_local(0);
        CHECK(before >= 0 && before < here.size);
    }
    comm.allreduce(seen, DTL_OP_SUM);
    CHECK(seen == vector<int64_t>(seen.size(), 1));
    const auto lock = counter->lock(0);
    CHECK(counter->fetch_op({}, 0, 0, DTL_OP_NO_OP) == static_cast<int64_t>(draws) * here.size);
    int64_t both[2] = {};
    counter->get_accumulate(nullptr, both, 2, 0, 0, DTL_OP_NO_OP);
    counter->flush(0);
    CHECK(both[0] == static_cast<int64_t>(draws) * here.size && both[1] == here.size);
}

// A lock made of compare_and_swap, in every form, and sums under it.
static void swaps(dtl::comm_ref comm)
{
    const place here(comm);
    dtl::window<uint32_t> word(comm, 2);
    const auto lock = word->lock_all();
    const uint32_t self = static_cast<uint32_t>(here.rank) + 1, nobody = 0;
    const int target = here.size - 1;
    for (int round = 0; round < 20; round++) {
        while (word->compare_and_swap(self, nobody, target, 0) != nobody) {
            std::this_thread::yield();
        }
        uint32_t sum = 0;
        word->get(&sum, 1, target, 1);
        word->flush(target);
        sum++;
        word->put(&sum, 1, target, 1);
        word->flush(target);
        uint32_t before = 0;
        word->compare_and_swap(&nobody, &self, &before, target, 0);
        word->flush_all();
        CHECK(before == self);
    }
    comm.barrier();
    CHECK(word->fetch_op(0, target, 1, DTL_OP_NO_OP) == 20U * static_cast<uint32_t>(here.size));
    CHECK((word->fetch_op<int32_t>(-1, DTL_PROC_NULL, 0, DTL_OP_SUM)) == 0);
}

// Requests; one that nobody waits for is waited for by its owner.
static void requests(dtl::comm_ref comm)
{
    const place here(comm);
    constexpr size_t count = 100000;
    dtl::window<float> window(comm, count);
    const vector<float> out(count, static_cast<float>(here.rank) + 0.5F);
    vector<float> in(count);
    auto lock = window->lock(here.next);
    window->rput(out, here.next, 0).wait();
    window->flush(here.next);
    {
        const dtl::request dropped = window->rget(in.data(), count, here.next, 0);
    }
    CHECK(in == out);
    in.assign(count, 0);
    dtl::request_list list;
    list.add(window->rget(in, here.next, 0));
    list.add(window->rput(in.data(), 0, here.next, count));
    list.wait_all();
    CHECK(in == out);
    lock.unlock();
}

// What a lock's owner does at the end of its scope, when it is moved, and when it is called twice.
static void locks(dtl::comm_ref comm)
{
    const place here(comm);
    dtl::window<int32_t> window(comm, 1);
    const int target = here.next, value = here.rank;
    for (const int type : {DTL_LOCK_SHARED, DTL_LOCK_EXCLUSIVE}) {
        const auto lock = window->lock(target, type);
        window->put(&value, 1, target, 0);
    } // or the second one would be refused, here or by the other ranks
    try {
        const auto lock = window->lock_all();
        throw std::runtime_error("in an epoch");
    } catch (const std::runtime_error &) {
    }
    dtl::window_lock none, first = window->lock(target), second = std::move(first);
    CHECK(!none && !first && second);
    CHECK(thrown([&] { first.unlock(); }) == DTL_ERROR_INVALID_HANDLE);
    CHECK(thrown([&] { window->lock(target).unlock(); }) == DTL_ERROR_INVALID_STATE);
    second = std::move(itself(second));
    CHECK(second);
    none = std::move(second);
    none.unlock();
    CHECK(!none && thrown([&] { none.unlock(); }) == DTL_ERROR_INVALID_HANDLE);
    first = window->lock_all();
    first = dtl::window_lock(); // unlocks
    first = window->lock(here.rank, DTL_LOCK_EXCLUSIVE);
    first.unlock();
    CHECK(thrown([&] { window->put(&value, 1, target, 0); }) == DTL_ERROR_INVALID_STATE);
    CHECK(thrown([&] { window->flush_all(); }) == DTL_ERROR_INVALID_STATE);
    comm.barrier();
    CHECK(window[0] == here.previous);
}

// A window belongs to one owner, and ends with it whatever its state.
static void owners(dtl::comm_ref comm)
{
    const place here(comm);
    dtl::window<int32_t> none, first(comm, 4);
    none.destroy();
    int32_t *const data = first.data();
    dtl::window<int32_t> second = std::move(first);
    CHECK(!none && !first && second && second.data() == data && first.data() == nullptr && first.size() == 0);
    CHECK(first.get().id == 0 && second.ref().get().id == second.get().id);
    second = std::move(itself(second));
    CHECK(second && second.data() == data);
    none = std::move(second);
    CHECK(none && !second);
    none = dtl::window<int32_t>(comm, 3); // ends the one before
    CHECK(none.size() == 3);
    second.destroy();
    CHECK(none->info(here.next).size_bytes == 12);
    {
        const auto lock = none->lock_all();
        CHECK(thrown([&] { none.destroy(); }) == DTL_ERROR_INVALID_STATE && none);
    }
    none.destroy();
    none.destroy();
    CHECK(!none && none.data() == nullptr);

    // Epochs that nobody ended: locks of one, of all (not of the same on all ranks), a fence with operations after it.
    const int32_t value = 7;
    vector<int32_t> memory(2);
    for (int way = 0; way < 3; way++) {
        dtl::window<int32_t> window(comm, memory.data(), memory.size());
        const dtl_win_t handle = window.get();
        if (way == 0 && here.rank % 2 == 0) {
            dtl::check(dtl_win_lock(handle, DTL_LOCK_SHARED, here.next));
        } else if (way == 1 && here.rank != 0) {
            dtl::check(dtl_win_lock_all(handle));
        } else if (way == 2) {
            window->fence();
            window->put(&value, 1, here.next, 1);
        }
        window = dtl::window<int32_t>();
        CHECK(thrown([&] { dtl::window_ref<int32_t>(handle).info(0); }) == DTL_ERROR_INVALID_HANDLE);
    }
    CHECK(memory[1] == 7);
}

static void failures(dtl::comm_ref comm)
{
    const place here(comm);
    dtl::window<int64_t> window(comm, 4);
    vector<int64_t> five(5);
    CHECK(thrown([&] { window->put(five, here.next, 0); }) == DTL_ERROR_INVALID_STATE); // no epoch
    const auto lock = window->lock_all();
    CHECK(thrown([&] { window->put(five, here.next, 0); }) == DTL_ERROR_OUT_OF_BOUNDS);
    CHECK(thrown([&] { window->get(five.data(), 1, here.next, 4); }) == DTL_ERROR_OUT_OF_BOUNDS);
    CHECK(thrown([&] { window->put(five.data(), UINT64_MAX / 2, here.next, 0); }) == DTL_ERROR_INVALID_ARGUMENT);
    CHECK(thrown([&] { window->fetch_op(1, here.size, 0, DTL_OP_SUM); }) == DTL_ERROR_INVALID_RANK);
    CHECK(thrown([&] { window->fetch_op<double>(1, 0, 0, DTL_OP_BAND); }) == DTL_ERROR_TYPE);
    CHECK(thrown([&] { window->get(nullptr, 1, 0, 0); }) == DTL_ERROR_NULL_POINTER);
    CHECK(thrown([&] { window->lock(here.size).unlock(); }) == DTL_ERROR_INVALID_RANK);
    CHECK(thrown([&] { window->lock(here.next).unlock(); }) == DTL_ERROR_INVALID_STATE);
    CHECK(thrown([&] { window->info(here.size); }) == DTL_ERROR_INVALID_RANK);
    CHECK(thrown([] { dtl::window_ref<int>().fence(); }) == DTL_ERROR_INVALID_HANDLE);
    CHECK(thrown([&] { dtl::window<int64_t>(comm, UINT64_MAX / 4); }) == DTL_ERROR_OUT_OF_MEMORY);
    CHECK(thrown([&] { dtl::window<int64_t>(comm, nullptr, 1); }) == DTL_ERROR_NULL_POINTER);
    for (int64_t *element = window.data(); element != window.data() + 4; element++) {
        CHECK(*element == 0);
    }
    comm.barrier();
}

// Outside of a lock nobody can wait for a value: that is told, and what was begun goes on in memory of its own.
static void values_between_fences(dtl::comm_ref comm)
{
    const place here(comm);
    dtl::window<int32_t> window(comm, 1);
    window->fence();
    CHECK(thrown([&] { window->fetch_op(1, here.next, 0, DTL_OP_SUM); }) == DTL_ERROR_INVALID_STATE);
    window->fence();
    CHECK(window[0] == 1);
}

static void everything(dtl::comm_ref comm)
{
    fences(comm);
    counters(comm);
    swaps(comm);
    requests(comm);
    locks(comm);
    owners(comm);
    failures(comm);
    values_between_fences(comm);
    comm.barrier();
}

static void with_threads(int32_t ranks)
{
    vector<dtl_comm_t> handles(static_cast<size_t>(ranks));
    vector<std::thread> threads;
    dtl::check(dtl_comm_threads(ranks, 0, handles.data()));
    for (const dtl_comm_t handle : handles) {
        threads.emplace_back([handle] {
            const dtl::comm own(handle);
            everything(own);
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
}

// One rank leaves by an exception between fences, the others go on to the next ones: all of them end, and are told.
static void unwound(dtl::comm_ref world)
{
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    desc.timeout_ns = 100000000;
    const dtl::comm hasty(desc);
    const place here(hasty);
    vector<int64_t> memory(1);
    const int64_t value = 1;
    bool has_left = false;
    const dtl_status_t told = thrown([&] {
        try {
            const dtl::window window(hasty, memory);
            window->fence();
            window->put(&value, 1, here.next, 0);
            if (here.rank == 0) {
                throw std::runtime_error("a failure of rank 0's own");
            }
            for (;;) {
                window->fence();
            }
        } catch (const std::runtime_error &failure) {
            has_left = std::strstr(failure.what(), "rank 0's own") != nullptr;
            if (!has_left) {
                throw; // a dtl::error
            }
        }
    });
    CHECK(has_left == (here.rank == 0) && (told == DTL_SUCCESS) == has_left);
    memory = vector<int64_t>(); // nobody writes there any more
    world.barrier();
}

static char state_of(pid_t process)
{
    char name[64], text[512] = "";
    std::snprintf(name, sizeof name, "/proc/%d/stat", static_cast<int>(process));
    std::FILE *file = std::fopen(name, "r");
    CHECK(file != nullptr);
    CHECK(std::fgets(text, sizeof text, file) != nullptr);
    std::fclose(file);
    const char *end = std::strrchr(text, ')');
    CHECK(end != nullptr);
    return end[2];
}

// The target is stopped, so nothing reaches it: the time limit is told, what was begun goes on, and the lock's owner waits
// for it when its scope ends.
static void stopped(dtl::comm_ref world)
{
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    desc.timeout_ns = 50000000;
    const dtl::comm hasty(desc);
    vector<int64_t> memory(1), got(1);
    dtl::window window(hasty, memory); // processes do not reach this memory by themselves
    const vector<int32_t> processes = world.allgather(static_cast<int32_t>(getpid()));
    if (world.rank() == 0) {
        std::thread resume;
        {
            const auto lock = window->lock(1);
            CHECK(window->fetch_op(5, 1, 0, DTL_OP_SUM) == 0);
            CHECK(kill(processes[1], SIGSTOP) == 0);
            while (state_of(processes[1]) != 'T') {
                std::this_thread::yield();
            }
            CHECK(thrown([&] { window->fetch_op(5, 1, 0, DTL_OP_SUM); }) == DTL_ERROR_TIMEOUT);
            window->get(got, 1, 0);
            CHECK(thrown([&] { window->flush_local(1); }) == DTL_ERROR_TIMEOUT);
            resume = std::thread([&] {
                std::this_thread::sleep_for(std::chrono::milliseconds(200));
                CHECK(kill(processes[1], SIGCONT) == 0);
            });
        }
        CHECK(got[0] == 5 || got[0] == 10); // a get has no order with the sum
        resume.join();
        const auto lock = window->lock(1);
        CHECK(window->fetch_op({}, 1, 0, DTL_OP_NO_OP) == 10);
    }
    world.barrier();
    CHECK(memory[0] == (world.rank() == 0 ? 0 : 10));
}

int main(int argc, char **argv)
{
    dtl::library library;
    const dtl::comm_ref world;
    if (argc > 1 && std::strcmp(argv[1], "stopped") == 0) {
        stopped(world);
        return 0;
    }
    if (argc > 1 && std::strcmp(argv[1], "unwound") == 0) {
        unwound(world);
        return 0;
    }
    everything(world);
    if (world.size() == 1) {
        with_threads(3);
    }
    if (world.rank() == 0) {
        std::printf("window: all checks passed with %d ranks\n", world.size());
    }
}
