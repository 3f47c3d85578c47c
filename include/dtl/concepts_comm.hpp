// A class with the functions of concept Communicator as a transport of the library: the slots of a comm table. Part of
// dtl/concepts.hpp.
//
// The library requires more of a transport than such a class has: receives from any rank, and the size of a received
// message. So each message is sent as two, under one tag: 8 bytes with its size, then, unless the size is 0, its
// bytes. The first of the two is matched to the oldest receive that accepts it. A receive from any rank posts a
// receive for it from every rank. Messages of a rank to itself do not reach the class.
#include "concepts.hpp" // before the guard: it includes this header at its end

#ifndef DTL_CONCEPTS_COMM_HPP
#define DTL_CONCEPTS_COMM_HPP

#if DTL_HAS_CONCEPTS

#include "concepts_coll.hpp"

#include <cstring>
#include <deque>
#include <iterator>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace dtl::detail {

/// One communicator that is open. Its slots are called one at a time.
template <class C> class comm_session {
    using thread_type = std::conditional_t<has_blocking_collectives<C>, collective_thread<C>, no_thread>;

    /// A send, a receive or a collective of the library's; its address is its word.
    struct operation {
        typename std::list<operation>::iterator place;
        bool is_send = false, done = false;
        void *buf = nullptr;
        uint64_t capacity = 0, header = 0;
        std::optional<step<C>> first, second;  // the size, the bytes
        std::shared_ptr<collective_call> call; // of a collective that blocks
        dtl_comm_done_t result{};

        void end(dtl_status_t status) noexcept
        {
            result.status = status;
            done = true;
        }
    };

    /// What comes from one rank under one word.
    struct lane {
        uint64_t header = 0;
        std::optional<step<C>> first, second; // the size, the bytes
        operation *into = nullptr;            // whose buffer `second` fills
        bool broken = false;                  // no receive from any rank waits for it
    };
    using lane_key = std::pair<uint64_t, int>; // word, source

    struct local_message {
        uint64_t word;
        std::vector<std::byte> bytes;
    };

  public:
    explicit comm_session(C &comm)
        : rank_(rank_of(comm)), size_(static_cast<int>(comm.size())), comm_(&comm), thread_(comm, rank_, size_)
    {
    }

    /// The class's object belongs to the session.
    explicit comm_session(std::unique_ptr<C> comm) : comm_session(*comm) { owned_ = std::move(comm); }

    comm_session(const comm_session &) = delete;
    comm_session &operator=(const comm_session &) = delete;
    ~comm_session()
    {
        stop();
        drop_requests();
        owned_.reset(); // before the operations, which its requests point to
    }

    /// Locks the class before one of its functions is called; false: another function runs.
    auto enter() noexcept
    {
        if constexpr (has_blocking_collectives<C>) {
            return std::unique_lock<std::mutex>(thread_.lock(), std::try_to_lock);
        } else {
            return std::true_type();
        }
    }

    /// Locks the object of the class. Waits while another thread is in one of its functions.
    auto enter_waiting()
    {
        if constexpr (has_blocking_collectives<C>) {
            return std::unique_lock<std::mutex>(thread_.lock());
        } else {
            return std::true_type();
        }
    }

    /// Must be called before the session is destroyed. False: a function of the class has not returned, and the
    /// session must never be destroyed.
    bool stop() noexcept { return thread_.stop(); }

    /// Destroys the class's object, whose destructor may throw.
    void end_class()
    {
        drop_requests();
        delete owned_.release();
    }

    /// Releases all requests, which are not tested any more.
    void drop_requests() noexcept
    {
        thread_.drop_requests();
        for (auto *const list : {&operations_, &failed_}) {
            for (operation &op : *list) {
                op.first.reset(), op.second.reset();
            }
        }
        for (auto &from : lanes_) {
            from.second.first.reset(), from.second.second.reset();
        }
    }

    int rank() const noexcept { return rank_; }
    int size() const noexcept { return size_; }

    uint64_t send(const void *buf, uint64_t size, int dest, uint64_t word)
    {
        operation &op = begin(word);
        op.is_send = true;
        return started(op, [&] {
            if (dest == rank_) {
                const auto *bytes = static_cast<const std::byte *>(buf);
                local_.push_back({word, std::vector<std::byte>(bytes, bytes + size)});
                op.end(DTL_SUCCESS);
                return;
            }
            op.header = size;
            op.first.emplace(comm_->isend(as_bytes(&op.header), sizeof op.header, dest, tag_of(word)));
            if (size > 0) {
                op.second.emplace(comm_->isend(as_bytes(buf), size, dest, tag_of(word)));
            }
        });
    }

    uint64_t receive(void *buf, uint64_t capacity, int source, uint64_t word)
    {
        operation &op = begin(word);
        op.buf = buf;
        op.capacity = capacity;
        op.result.source = source;
        const uint64_t own = started(op, [&] {
            for (int from = 0; from < size_; from++) {
                if (from != rank_ && accepts(op, from)) {
                    lanes_.try_emplace({word, from});
                }
            }
            posted_[word].push_back(&op);
        });
        advance_lanes(word);
        return own;
    }

    bool takes(const dtl_coll_args_t &args)
    {
        if constexpr (NativeCollectives<C>) {
            return comm_->collective_supported(args);
        } else if constexpr (has_blocking_collectives<C>) {
            return thread_type::takes(args);
        } else {
            return false;
        }
    }

    uint64_t collective(const dtl_coll_args_t &args)
    {
        operation &op = begin(0);
        op.is_send = true; // nothing follows its first request
        return started(op, [&] {
            if constexpr (NativeCollectives<C>) {
                op.first.emplace(comm_->collective_start(args));
            } else if constexpr (has_blocking_collectives<C>) {
                op.call = thread_.start(args);
            }
        });
    }

    int32_t use_of(const dtl_mem_info_t &info) const
        requires MemoryRegistration<C>
    {
        return std::as_const(*comm_).mem_supports(info);
    }

    void *add_memory(const dtl_mem_info_t &info, int dmabuf, uint64_t offset)
        requires MemoryRegistration<C>
    {
        return comm_->mem_register(info, dmabuf, offset);
    }

    void end_memory(void *registration)
        requires MemoryRegistration<C>
    {
        comm_->mem_deregister(registration);
    }

    /// Cancels a receive without a message, or a collective that has not begun.
    void cancel(uint64_t word)
    {
        operation &op = of_word(word);
        if constexpr (has_blocking_collectives<C>) {
            if (op.call) {
                return thread_.cancel(*op.call);
            }
        }
        if (take_posted(op)) {
            op.end(DTL_ERROR_CANCELED);
        }
    }

    /// Moves all receives from any rank on, and this operation. True: it is over, and its result is there.
    bool test(uint64_t word, dtl_comm_done_t &result)
    {
        operation &op = of_word(word);
        deliver_own();
        for (auto each = lanes_.begin(); each != lanes_.end();) {
            advance(each->first, each->second);
            each = is_idle(each->first, each->second) ? lanes_.erase(each) : std::next(each);
        }
        if constexpr (has_blocking_collectives<C>) {
            thread_.progress();
            if (op.call && thread_.is_over(*op.call)) {
                op.result.source = op.call->source;
                failing(op, [&] {
                    if (op.call->failure) {
                        std::rethrow_exception(op.call->failure);
                    }
                    op.end(DTL_SUCCESS);
                });
            }
        }
        if (!op.done) {
            advance(op);
        }
        if (!op.done) {
            return false;
        }
        result = op.result;
        if (op.result.status == DTL_SUCCESS) {
            operations_.erase(op.place);
        } else {
            failed_.splice(failed_.begin(), operations_, op.place); // the class may still touch its header
        }
        return true;
    }

  private:
    static int rank_of(const C &comm)
    {
        const auto rank = static_cast<int>(comm.rank()), ranks = static_cast<int>(comm.size());
        if (rank < 0 || rank >= ranks) {
            throw error(DTL_ERROR_BACKEND, "the communicator says that it is rank " + std::to_string(rank) + " of " +
                                               std::to_string(ranks));
        }
        return rank;
    }

    static std::byte *as_bytes(void *data) noexcept { return static_cast<std::byte *>(data); }
    static const std::byte *as_bytes(const void *data) noexcept { return static_cast<const std::byte *>(data); }
    static int tag_of(uint64_t word) noexcept { return static_cast<int>(word); } // below 2^28

    static operation &of_word(uint64_t word) noexcept
    {
        return *reinterpret_cast<operation *>(static_cast<uintptr_t>(word));
    }

    operation &begin(uint64_t word)
    {
        operation &op = operations_.emplace_front();
        op.place = operations_.begin();
        op.result.match_word = word;
        return op;
    }

    /// Starts what was begun; nothing of it stays if that throws before anything was started.
    template <class F> uint64_t started(operation &op, F start)
    {
        try {
            start();
        } catch (...) {
            if (!op.first) {
                operations_.pop_front();
                throw;
            }
            op.end(slot([]() -> dtl_status_t { throw; })); // its first message is in flight: tested until it ends
        }
        return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(&op));
    }

    /// Calls the class; what it throws is the operation's failure.
    template <class F> static void failing(operation &op, F body) noexcept
    {
        const dtl_status_t status = slot([&] { return body(), DTL_SUCCESS; });
        if (status != DTL_SUCCESS) {
            op.end(status);
        }
    }

    /// A send, or a collective that does not block.
    void advance(operation &op) noexcept
    {
        failing(op, [&] {
            if (op.first && op.first->is_done(*comm_) && (!op.second || op.second->is_done(*comm_))) {
                op.end(DTL_SUCCESS);
            }
        });
    }

    static void fits(uint64_t size, const operation &op)
    {
        if (size > op.capacity) {
            throw error(DTL_ERROR_BACKEND, "a size of " + std::to_string(size) + " bytes came for " +
                                               std::to_string(op.capacity) +
                                               ": does the communicator keep messages of one tag in order?");
        }
    }

    static bool accepts(const operation &op, int source) noexcept
    {
        return op.result.source == source || op.result.source == DTL_ANY_SOURCE;
    }

    /// The oldest receive that waits for a message of that word from that rank; nullptr: none.
    operation *oldest(lane_key key, bool only_named) noexcept
    {
        const auto posted = posted_.find(key.first);
        if (posted != posted_.end()) {
            for (operation *const op : posted->second) {
                if (accepts(*op, key.second) && (!only_named || op->result.source != DTL_ANY_SOURCE)) {
                    return op;
                }
            }
        }
        return nullptr;
    }

    bool take_posted(const operation &op) noexcept
    {
        const auto posted = posted_.find(op.result.match_word);
        if (posted == posted_.end() || std::erase(posted->second, &op) == 0) {
            return false;
        }
        if (posted->second.empty()) {
            posted_.erase(posted);
        }
        return true;
    }

    bool is_idle(lane_key key, const lane &from) noexcept
    {
        return !from.first && !from.broken && oldest(key, false) == nullptr;
    }

    void advance_lanes(uint64_t word) noexcept
    {
        for (auto each = lanes_.lower_bound({word, 0}); each != lanes_.end() && each->first.first == word; ++each) {
            advance(each->first, each->second);
        }
    }

    /// The next message of a lane for the oldest receive that accepts it.
    void advance(lane_key key, lane &from) noexcept
    {
        const int source = key.second, tag = tag_of(key.first);
        operation *const next = from.into != nullptr ? from.into : oldest(key, from.broken);
        if (next == nullptr) {
            return;
        }
        const dtl_status_t status = slot([&] {
            if (!from.first) {
                from.first.emplace(comm_->irecv(as_bytes(&from.header), sizeof from.header, source, tag));
            }
            if (!from.first->is_done(*comm_)) {
                return DTL_SUCCESS;
            }
            if (from.into == nullptr) {
                fits(from.header, *next);
                take_posted(*next);
                from.into = next;
                next->result.source = source;
                if (from.header > 0) {
                    from.second.emplace(comm_->irecv(as_bytes(next->buf), from.header, source, tag));
                }
            }
            if (!from.second || from.second->is_done(*comm_)) {
                next->result.size_bytes = from.header;
                next->end(DTL_SUCCESS);
                from.into = nullptr;
                from.first.reset();
                from.second.reset();
            }
            return DTL_SUCCESS;
        });
        if (status != DTL_SUCCESS) { // one receive from any rank ends by it, and each that names the rank
            from.broken = true;
            from.into = nullptr;
            take_posted(*next);
            next->result.source = source;
            next->end(status);
        }
    }

    /// What this rank sent to itself.
    void deliver_own()
    {
        for (auto message = local_.begin(); message != local_.end();) {
            operation *const op = oldest({message->word, rank_}, false);
            if (op == nullptr) {
                ++message;
                continue;
            }
            take_posted(*op);
            failing(*op, [&] {
                fits(message->bytes.size(), *op);
                if (!message->bytes.empty()) {
                    std::memcpy(op->buf, message->bytes.data(), message->bytes.size());
                }
                op->result.source = rank_;
                op->result.size_bytes = message->bytes.size();
                op->end(DTL_SUCCESS);
            });
            message = local_.erase(message);
        }
    }

    int rank_, size_;
    std::list<operation> operations_, failed_;            // their places stay
    std::map<lane_key, lane> lanes_;                      // that receives wait for
    std::map<uint64_t, std::deque<operation *>> posted_;  // receives by word, in the order posted
    std::deque<local_message> local_;
    C *comm_;
    thread_type thread_;
    std::unique_ptr<C> owned_;
};

/// Communicators that have a member of MemoryRegistration, with any parameters.
template <class C>
concept names_registration =
    requires { &C::mem_supports; } || requires { &C::mem_register; } || requires { &C::mem_deregister; };

/// The memory slots of a class.
template <class C> struct registration_slots {
    static_assert(MemoryRegistration<C> || !names_registration<C>,
                  "mem_supports (const), mem_register and mem_deregister: all of them, as in the concept "
                  "dtl::MemoryRegistration, or none");

    static void fill(dtl_comm_vtable_t &table) noexcept
    {
        if constexpr (MemoryRegistration<C>) {
            table.mem_supports = supports, table.mem_register = add, table.mem_deregister = end;
        }
    }

  private:
    static auto &session(void *comm) noexcept { return *static_cast<comm_session<C> *>(comm); }

    static dtl_status_t supports(void *, void *comm, const dtl_mem_info_t *info, int32_t *out) noexcept
    {
        return slot([&] { return *out = session(comm).use_of(*info), DTL_SUCCESS; });
    }

    // The next two slots may block: they wait while the communicator's thread is in a function of the class.

    static dtl_status_t add(void *, void *comm, const dtl_mem_info_t *info, int32_t dmabuf, uint64_t offset,
                            void **out) noexcept
    {
        return slot([&] {
            [[maybe_unused]] const auto guard = session(comm).enter_waiting();
            return *out = session(comm).add_memory(*info, dmabuf, offset), DTL_SUCCESS;
        });
    }

    static dtl_status_t end(void *, void *comm, void *registration) noexcept
    {
        return slot([&] {
            [[maybe_unused]] const auto guard = session(comm).enter_waiting();
            return session(comm).end_memory(registration), DTL_SUCCESS;
        });
    }
};

/// Whether each dtl_comm_open makes one: `C(args)`. Else there is one object, which is opened once.
template <class C>
concept opened_by_args = requires(const dtl_comm_open_t &args) { new C(args); }; // its destructor may throw

} // namespace dtl::detail

#endif
#endif
