// hash_table: a table of counts whose slots lie in the memory of all ranks, and that all ranks fill at the same time.
//
// Each rank counts the keys of its own part of the data; many keys are in several parts. A key's hash says in which slot
// of which rank it belongs. Who comes first claims the slot by compare_and_swap; if another key is there, the next slot is
// tried (linear probing, round all ranks). Counts grow by atomic sums. No rank sends a message, none waits for one, and
// the rank that a slot belongs to takes no part.
//
// Build: find_package(dtl) and target_link_libraries(hash_table PRIVATE dtl::dtl), or
//        c++ -std=c++17 hash_table.cpp $(pkg-config --cflags --libs libdtl) -o hash_table
// Run:   dtlrun -n 4 ./hash_table [keys per rank, default 2000] [different keys, default 500] [slots per rank]
//        As a default there are twice as many slots as different keys. With fewer than keys the table becomes full.
// Prints, from rank 0, what is in the table, and whether that is what one rank alone counts.
#include <dtl.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

namespace {

// Spreads numbers evenly (the end of splitmix64).
uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

// Counts of keys other than 0. Making one, settle() and its end are collective; add() and find() are not.
class table {
  public:
    // The window's elements are words, two for each slot: key, count. Memory that the library allocates is zeroed, so
    // all slots are empty, and on one node the other ranks reach it by themselves.
    table(dtl::comm_ref comm, uint64_t slots) : comm_(comm), ranks_(comm.size()), slots_(slots), words_(comm, 2 * slots)
    {
        // One epoch for everything: keys may go to any rank. The locks are shared ones: what ranks do to one element
        // at the same time is right because it is atomic, not because they take turns.
        lock_ = words_->lock_all();
    }

    // Adds 1 to the count of a key; false: there is no slot left for it.
    bool add(uint64_t key) const
    {
        static const uint64_t one = 1; // read later, maybe: it must stay as it is until the next flush or unlock
        for (uint64_t tried = 0; tried < slots_ * uint64_t(ranks_); tried++) {
            const slot at = slot_of(key, tried);
            // If the slot is empty it is ours, and nobody else can think so: looking and storing are one step.
            const uint64_t before = words_->compare_and_swap(key, empty, at.rank, at.key);
            if (before == empty || before == key) {
                // Not waited for. A sum, so that nobody's addition is lost. To set a value instead, DTL_OP_REPLACE: a
                // put is not atomic, and others may be at the same element.
                words_->accumulate(&one, 1, at.rank, at.count, DTL_OP_SUM);
                return true;
            }
        }
        return false;
    }

    // The count of a key, 0 if it is not there; also while others add to it.
    uint64_t find(uint64_t key) const
    {
        for (uint64_t tried = 0; tried < slots_ * uint64_t(ranks_); tried++) {
            const slot at = slot_of(key, tried);
            std::array<uint64_t, 2> got{}; // key and count
            // NO_OP changes nothing, which makes this an atomic get. A plain get would do if nobody could change the
            // table meanwhile; now it might give half of the old bytes and half of the new ones. What it gets is there
            // after a flush; the local kind waits for nothing but that.
            words_->get_accumulate(nullptr, got.data(), 2, at.rank, at.key, DTL_OP_NO_OP);
            words_->flush_local(at.rank);
            if (got[0] == empty) return 0; // keys are never taken out, so it is in no later slot
            if (got[0] == key) return got[1];
        }
        return 0;
    }

    // Waits until everybody's additions are in the table.
    void settle() const
    {
        words_->flush_all(); // this rank's are at their targets,
        comm_.barrier();     // and so are all others': own slots may be read as plain memory
    }

    // Slots of this rank that have a key. After settle().
    uint64_t used() const
    {
        uint64_t count = 0;
        for (uint64_t i = 0; i < slots_; i++) count += words_[2 * i] != empty;
        return count;
    }

  private:
    static constexpr uint64_t empty = 0;

    // Where a slot is: displacements at its rank, in words.
    struct slot {
        int rank;
        uint64_t key, count;
    };

    // The slot for a key after so many others that were taken.
    slot slot_of(uint64_t key, uint64_t tried) const
    {
        const uint64_t all = slots_ * uint64_t(ranks_), index = (mix(key) % all + tried) % all, there = index % slots_;
        return {int(index / slots_), 2 * there, 2 * there + 1};
    }

    dtl::comm_ref comm_;
    int ranks_;
    uint64_t slots_;
    dtl::window<uint64_t> words_;
    dtl::window_lock lock_; // after the window, so that it goes before it
};

// The data: key number `i` of a rank's part. Low ones are more frequent than high ones.
uint64_t key_at(int rank, uint64_t i, uint64_t different)
{
    const uint64_t first = (uint64_t(rank) << 32) + 2 * i;
    return 1 + std::min(mix(first + 1) % different, mix(first + 2) % different);
}

struct totals {
    // Additions in the table and not in it, slots, keys with wrong counts.
    uint64_t counted = 0, refused = 0, used = 0, wrong = 0;
};

// Fills a table and verifies it: this rank's share of the keys against counting them alone, and its own slots.
totals count_keys(dtl::comm_ref comm, uint64_t keys, uint64_t different, uint64_t slots)
{
    const int rank = comm.rank(), size = comm.size();
    const table counts(comm, slots);
    totals own;
    for (uint64_t i = 0; i < keys; i++) {
        const uint64_t key = key_at(rank, i, different);
        if (!counts.add(key)) {
            own.refused++;
        } else if (i % 16 == 0 && counts.find(key) == 0) {
            own.wrong++; // what a rank has added it finds at once: its operations on one element keep their order
        }
    }
    counts.settle();

    std::vector<uint64_t> expected(different + 1);
    for (int other = 0; other < size; other++) {
        for (uint64_t i = 0; i < keys; i++) expected[key_at(other, i, different)]++;
    }
    for (uint64_t key = 1 + uint64_t(rank); key <= different; key += uint64_t(size)) {
        const uint64_t count = counts.find(key);
        own.counted += count;
        // All of a key's additions, or none: a full table does not become less full.
        own.wrong += count != expected[key] && count != 0;
    }
    own.used = counts.used();
    return {comm.allreduce(own.counted, DTL_OP_SUM), comm.allreduce(own.refused, DTL_OP_SUM),
            comm.allreduce(own.used, DTL_OP_SUM), comm.allreduce(own.wrong, DTL_OP_SUM)};
} // the locks go, then the table, when all ranks are here

int run(int argc, char **argv)
{
    const dtl::library library;
    const dtl::comm_ref world;
    const int size = world.size();
    const long long keys = argc > 1 ? std::atoll(argv[1]) : 2000, different = argc > 2 ? std::atoll(argv[2]) : 500;
    const long long slots = argc > 3 ? std::atoll(argv[3]) : 2 * different / size + 1, most = 100000000;
    if (argc > 4 || keys < 1 || different < 1 || slots < 1 || std::max({keys, different, slots}) > most) {
        std::fprintf(stderr, "usage: hash_table [keys per rank] [different keys] [slots per rank], each 1 to %lld\n", most);
        return 2;
    }
    const totals all = count_keys(world, uint64_t(keys), uint64_t(different), uint64_t(slots));
    const uint64_t added = uint64_t(keys) * uint64_t(size), room = uint64_t(slots) * uint64_t(size);
    // Every addition is there or was refused, and that only by a full table.
    const bool good = all.wrong == 0 && all.counted + all.refused == added && (all.refused == 0 || all.used == room);
    if (world.rank() == 0) {
        const auto number = [](uint64_t value) { return static_cast<unsigned long long>(value); };
        if (all.refused > 0) std::printf("the table is full: %llu keys refused\n", number(all.refused));
        std::printf("%d ranks, %llu of %llu keys counted, in %llu of %llu slots: %s\n", size, number(all.counted),
                    number(added), number(all.used), number(room), good ? "correct" : "WRONG");
    }
    return good ? 0 : 1;
}

} // namespace

int main(int argc, char **argv)
{
    try {
        return run(argc, argv);
    } catch (const std::exception &failure) {
        std::fprintf(stderr, "hash_table: %s\n", failure.what());
        return 1;
    }
}
