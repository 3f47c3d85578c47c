// Blocking collectives of a class that satisfies CollectiveCommunicator: the thread that calls them. Part of
// dtl/concepts.hpp.
//
// A slot must not block, so the functions are called by a thread of the communicator. The functions of a communicator
// are called one at a time, so no other function of the class is called while a collective runs. That is safe only if
// all ranks are in the same collective: a rank outside may wait for a message from one inside. Therefore each rank sends
// a note (a message with the context) to rank 0 when it starts a collective. When rank 0 has the notes of all ranks,
// it sends a note to each of them, and then all call the function. Thus rank 0 also decides on one order for the
// collectives of several contexts.
#include "concepts.hpp" // before the guard: it includes this header at its end

#ifndef DTL_CONCEPTS_COLL_HPP
#define DTL_CONCEPTS_COLL_HPP

#if DTL_HAS_CONCEPTS

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace dtl::detail {

/// Request of a class that is tested until it is done.
template <class C> class step {
  public:
    explicit step(request_of<C> &&request) : request_(std::move(request)) {}

    bool is_done(C &comm)
    {
        done_ = done_ || comm.test(request_);
        return done_;
    }

  private:
    request_of<C> request_;
    bool done_ = false;
};

/// A collective in flight.
struct collective_call {
    explicit collective_call(const dtl_coll_args_t &args)
        : collective(args.collective), root(args.root), context(args.context), count(args.count),
          element_bytes(args.element_bytes), in(args.send[0]), out(args.recv[0])
    {
        if ((args.flags & DTL_COLL_IN_PLACE) != 0) {
            keep(in, kept_in); // the class's functions expect two buffers that do not overlap
        }
    }

    /// Replaces the buffers by copies, because the caller's buffers become invalid while the call continues.
    void detach()
    {
        keep(in, kept_in);
        keep(out, kept_out);
    }

    static void keep(dtl_coll_range_t &range, std::vector<std::byte> &copy)
    {
        const auto *const first = static_cast<const std::byte *>(range.ptr);
        copy = range.size_bytes == 0 ? std::vector<std::byte>() : std::vector<std::byte>(first, first + range.size_bytes);
        range.ptr = copy.data();
    }

    int32_t collective, root;
    uint32_t context;
    uint64_t count, element_bytes;
    dtl_coll_range_t in, out;
    std::vector<std::byte> kept_in, kept_out;
    bool agreed = false;        // all ranks have started it
    bool done = false;
    std::exception_ptr failure; // once it is done
    int source = 0;             // the rank that failed, or this one
};

/// The thread of one communicator, and its queue of collectives. Callers hold the lock, except for `lock`, `stop` and
/// `takes`.
template <class C> class collective_thread {
    using call_pointer = std::shared_ptr<collective_call>;

    /// A note that was sent, or that is expected from a rank: the context of the collective.
    struct note {
        uint32_t context = 0;
        std::optional<step<C>> request;
    };
    static constexpr int tag = 1 << 28; // above those of the library

  public:
    collective_thread(C &comm, int rank, int ranks) : comm_(&comm), rank_(rank), ranks_(ranks)
    {
        expected_.resize(static_cast<std::size_t>(ranks));
    }
    collective_thread(const collective_thread &) = delete;
    collective_thread &operator=(const collective_thread &) = delete;

    /// Held whenever a function of the class is called.
    std::mutex &lock() noexcept { return lock_; }

    /// Whether the class has a function for the collective. Uses only arguments that are the same on all ranks.
    static bool takes(const dtl_coll_args_t &args) noexcept
    {
        switch (args.collective) {
        case DTL_COLLECTIVE_BARRIER: return true;
        case DTL_COLLECTIVE_BCAST:
        case DTL_COLLECTIVE_GATHER:
        case DTL_COLLECTIVE_SCATTER:
        case DTL_COLLECTIVE_ALLGATHER:
        case DTL_COLLECTIVE_ALLTOALL: return args.count > 0 && args.element_bytes > 0;
        case DTL_COLLECTIVE_REDUCE:
        case DTL_COLLECTIVE_ALLREDUCE:
            return ReducingCommunicator<C> && args.count > 0 && args.dtype == DTL_DTYPE_FLOAT64 &&
                   args.op == DTL_OP_SUM && (args.flags & DTL_COLL_DETERMINISTIC) == 0;
        default: return false;
        }
    }

    call_pointer start(const dtl_coll_args_t &args)
    {
        if (broken_) {
            std::rethrow_exception(broken_);
        }
        const auto call = std::make_shared<collective_call>(args);
        call->source = rank_;
        waiting_.push_back(call);
        try {
            if (!thread_.joinable()) {
                thread_ = std::thread([this] { run(); });
            }
            if (rank_ == 0) {
                note_start(0, call->context);
            } else {
                send_note(0, call->context);
            }
        } catch (...) {
            fail_all(rank_);
        }
        changed_.notify_all();
        return call;
    }

    /// Whether the call is complete on this rank; rank 0's notes are sent by then, so that it may close.
    bool is_over(const collective_call &call) const noexcept
    {
        return call.done && (call.failure != nullptr || sent_.empty());
    }

    /// Makes progress on the notes.
    void progress() noexcept
    {
        int from = rank_;
        try {
            sent_.remove_if([this](note &each) { return each.request->is_done(*comm_); });
            const int first = rank_ == 0 ? 1 : 0, end = rank_ == 0 ? ranks_ : 1;
            for (from = first; from < end && !waiting_.empty(); from++) {
                receive_notes(from);
            }
        } catch (...) {
            fail_all(from);
        }
    }

    /// Releases the caller's buffers, unless the class already uses them. The call itself stays, because all other
    /// ranks may wait for this one in the function.
    void cancel(collective_call &call)
    {
        if (!call.done && !call.agreed) {
            call.detach();
            call.failure = std::make_exception_ptr(error(DTL_ERROR_CANCELED, "the collective was cancelled"));
            call.done = true;
        }
    }

    /// Ends the thread. False: a function of the class does not return; then neither this object nor the class's may end.
    bool stop() noexcept
    {
        if (!thread_.joinable()) {
            return true;
        }
        for (int tries = 0; tries < 1000; tries++) {
            if (lock_.try_lock()) {
                ends_ = true;
                lock_.unlock();
                changed_.notify_all();
                thread_.join();
                return true;
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        thread_.detach();
        return false;
    }

    void drop_requests() noexcept
    {
        sent_.clear();
        for (note &each : expected_) {
            each.request.reset();
        }
    }

  private:
    void run() noexcept
    {
        std::unique_lock<std::mutex> guard(lock_);
        while (!ends_) {
            if (!agreed_.empty()) {
                const call_pointer call = agreed_.front();
                agreed_.pop_front();
                finish(*call);
            } else if (waiting_.empty() && sent_.empty()) {
                changed_.wait(guard);
            } else {
                progress();
                if (agreed_.empty()) { // the slot `test` makes progress, too, and wakes this thread
                    changed_.wait_for(guard, std::chrono::milliseconds(1));
                }
            }
        }
    }

    void finish(collective_call &call) noexcept
    {
        try {
            perform(call);
        } catch (...) {
            call.failure = std::current_exception();
        }
        call.done = true;
    }

    void perform(const collective_call &call)
    {
        const auto *const in = static_cast<const std::byte *>(call.in.ptr);
        auto *const out = static_cast<std::byte *>(call.out.ptr);
        const auto count = static_cast<std::size_t>(call.count);
        const auto bytes = static_cast<std::size_t>(call.count * call.element_bytes);
        switch (call.collective) {
        case DTL_COLLECTIVE_BARRIER: comm_->barrier(); break;
        case DTL_COLLECTIVE_BCAST: comm_->broadcast(out, bytes, call.root); break;
        case DTL_COLLECTIVE_GATHER: comm_->gather(in, out, bytes, call.root); break;
        case DTL_COLLECTIVE_SCATTER: comm_->scatter(in, out, bytes, call.root); break;
        case DTL_COLLECTIVE_ALLGATHER: comm_->allgather(in, out, bytes); break;
        case DTL_COLLECTIVE_ALLTOALL: comm_->alltoall(in, out, bytes); break;
        default:
            if constexpr (ReducingCommunicator<C>) {
                const auto *const from = static_cast<const double *>(call.in.ptr);
                auto *const to = static_cast<double *>(call.out.ptr);
                if (call.collective == DTL_COLLECTIVE_REDUCE) {
                    comm_->reduce_sum(from, to, count, call.root);
                } else {
                    comm_->allreduce_sum(from, to, count);
                }
            }
        }
    }

    static std::byte *bytes_of(uint32_t &word) noexcept { return reinterpret_cast<std::byte *>(&word); }

    void send_note(int rank, uint32_t context)
    {
        note &sent = sent_.emplace_back();
        sent.context = context;
        try {
            const std::byte *const bytes = bytes_of(sent.context);
            sent.request.emplace(comm_->isend(bytes, sizeof context, rank, tag));
        } catch (...) {
            sent_.pop_back();
            throw;
        }
    }

    void receive_notes(int rank)
    {
        note &from = expected_[static_cast<std::size_t>(rank)];
        for (;;) {
            if (!from.request) {
                from.request.emplace(comm_->irecv(bytes_of(from.context), sizeof from.context, rank, tag));
            }
            if (!from.request->is_done(*comm_)) {
                return;
            }
            from.request.reset();
            if (rank_ == 0) {
                note_start(rank, from.context);
            } else {
                agree(from.context);
            }
        }
    }

    /// On rank 0: handles the start of a collective of that context by a rank.
    void note_start(int rank, uint32_t context)
    {
        std::vector<uint32_t> &started = started_[context]; // by rank, that are not agreed about
        started.resize(static_cast<std::size_t>(ranks_));
        started[static_cast<std::size_t>(rank)]++;
        if (std::find(started.begin(), started.end(), 0u) != started.end()) {
            return;
        }
        for (uint32_t &each : started) {
            each--;
        }
        for (int other = 1; other < ranks_; other++) {
            send_note(other, context);
        }
        agree(context);
    }

    /// Handles a note of rank 0: all ranks have started their oldest collective of that context.
    void agree(uint32_t context)
    {
        const auto oldest = std::find_if(waiting_.begin(), waiting_.end(),
                                         [context](const call_pointer &each) { return each->context == context; });
        if (oldest == waiting_.end()) {
            throw error(DTL_ERROR_BACKEND, "a note came for a collective that this rank has not started: does the "
                                           "communicator deliver each message once?");
        }
        (*oldest)->agreed = true;
        agreed_.push_back(*oldest);
        waiting_.erase(oldest);
        changed_.notify_all();
    }

    /// Fails all calls that wait for a note, because no note can arrive any more.
    void fail_all(int source) noexcept
    {
        broken_ = std::current_exception();
        for (const call_pointer &call : waiting_) {
            call->failure = call->done ? call->failure : broken_;
            call->source = call->done ? call->source : source;
            call->done = true;
        }
        waiting_.clear();
    }

    C *comm_;
    int rank_, ranks_;
    std::mutex lock_;
    std::condition_variable changed_;
    std::deque<call_pointer> waiting_, agreed_; // in the order started; in the order agreed about
    std::list<note> sent_;
    std::vector<note> expected_;                         // from each rank
    std::map<uint32_t, std::vector<uint32_t>> started_; // of each context
    std::exception_ptr broken_;
    bool ends_ = false;
    std::thread thread_;
};

/// Replaces collective_thread for a class without blocking collectives.
struct no_thread {
    template <class C> no_thread(C &, int, int) noexcept {}
    static constexpr bool stop() noexcept { return true; }
    static constexpr void drop_requests() noexcept {}
};

/// Whether the class has collectives, in one of the two forms.
template <class C> inline constexpr bool has_collectives = CollectiveCommunicator<C> || NativeCollectives<C>;

/// Whether a thread calls them.
template <class C> inline constexpr bool has_blocking_collectives = CollectiveCommunicator<C> && !NativeCollectives<C>;

} // namespace dtl::detail

#endif
#endif
