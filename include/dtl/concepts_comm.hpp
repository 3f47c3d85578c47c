// A class with the functions of concept Communicator as a transport of the library: the slots of a comm table. Part of
// dtl/concepts.hpp.
//
// The library asks a transport for more than such a class has: receives from any rank, and the size of what came. So
// each message goes as two, under one tag: 8 bytes that say its size, then, unless that is 0, its bytes. A receive from
// any rank waits for the first of the two from every rank. What a rank sends to itself stays here.
#include "concepts.hpp" // before the guard: it includes this header at its end

#ifndef DTL_CONCEPTS_COMM_HPP
#define DTL_CONCEPTS_COMM_HPP

#include <cstring>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace dtl::detail {

/// One communicator that is open. Its slots are called one at a time.
template <class C> class comm_session {
    using request_type = request_of<C>;

    /// A request of the class's that is asked after until it is done.
    class step {
      public:
        explicit step(request_type &&request) : request_(std::move(request)) {}

        bool is_done(C &comm)
        {
            done_ = done_ || comm.test(request_);
            return done_;
        }

      private:
        request_type request_;
        bool done_ = false;
    };

    /// A send or a receive of the library's; its address is its word.
    struct operation {
        typename std::list<operation>::iterator place;
        bool is_send = false, done = false;
        void *buf = nullptr;
        uint64_t capacity = 0, header = 0;
        std::optional<step> first, second; // the size, the bytes
        dtl_comm_done_t result{};

        void end(dtl_status_t status) noexcept
        {
            result.status = status;
            done = true;
        }
    };

    /// What comes from one rank under the word that is received from any.
    struct lane {
        uint64_t header = 0;
        std::optional<step> first, second;
        operation *into = nullptr; // whose buffer `second` fills
        bool broken = false;
    };

    struct local_message {
        uint64_t word;
        std::vector<std::byte> bytes;
    };

  public:
    explicit comm_session(C &comm) : rank_(static_cast<int>(comm.rank())), comm_(&comm)
    {
        const auto ranks = static_cast<int>(comm.size());
        if (rank_ < 0 || rank_ >= ranks) {
            throw error(DTL_ERROR_BACKEND, "the communicator says that it is rank " + std::to_string(rank_) + " of " +
                                               std::to_string(ranks));
        }
        lanes_.resize(static_cast<std::size_t>(ranks));
    }

    /// The class's object belongs to the session.
    explicit comm_session(std::unique_ptr<C> comm) : comm_session(*comm) { owned_ = std::move(comm); }

    comm_session(const comm_session &) = delete;
    comm_session &operator=(const comm_session &) = delete;
    ~comm_session()
    {
        drop_requests();
        owned_.reset(); // before what its requests point to
    }

    /// Lets go of all requests: nothing is asked any more.
    void drop_requests() noexcept
    {
        for (auto *const list : {&operations_, &failed_}) {
            for (operation &op : *list) {
                op.first.reset(), op.second.reset();
            }
        }
        for (lane &from : lanes_) {
            from.first.reset(), from.second.reset();
        }
    }

    int rank() const noexcept { return rank_; }
    int size() const noexcept { return static_cast<int>(lanes_.size()); }

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
        if (source == DTL_ANY_SOURCE && word != 0) {
            throw error(DTL_ERROR_NOT_SUPPORTED, "a receive from any rank under a word other than 0");
        }
        operation &op = begin(word);
        op.buf = buf;
        op.capacity = capacity;
        op.result.source = source;
        return started(op, [&] {
            if (source == DTL_ANY_SOURCE) {
                any_.push_back(&op);
            } else if (source == rank_) {
                own_.push_back(&op);
            } else {
                op.first.emplace(comm_->irecv(as_bytes(&op.header), sizeof op.header, source, tag_of(word)));
            }
        });
    }

    /// Moves all receives from any rank on, and this operation. True: it is over, and its result is there.
    bool test(uint64_t word, dtl_comm_done_t &result)
    {
        operation &op = *reinterpret_cast<operation *>(static_cast<uintptr_t>(word));
        deliver_own();
        for (int source = 0; source < size(); source++) {
            advance(source);
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
    static std::byte *as_bytes(void *data) noexcept { return static_cast<std::byte *>(data); }
    static const std::byte *as_bytes(const void *data) noexcept { return static_cast<const std::byte *>(data); }
    static int tag_of(uint64_t word) noexcept { return static_cast<int>(word); } // below 2^28

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
            op.end(slot([]() -> dtl_status_t { throw; })); // half of it is under way: it failed, and is asked after
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

    void advance(operation &op) noexcept
    {
        failing(op, [&] {
            if (!op.first || !op.first->is_done(*comm_)) {
                return; // from any rank, or not yet
            }
            if (!op.is_send && !op.second && op.header > 0) {
                fits(op.header, op);
                op.second.emplace(comm_->irecv(as_bytes(op.buf), op.header, op.result.source, tag_of(op.result.match_word)));
            }
            if (!op.second || op.second->is_done(*comm_)) {
                op.result.size_bytes = op.header;
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

    /// One rank's next message for the oldest receive from any rank.
    void advance(int source) noexcept
    {
        lane &from = lanes_[static_cast<std::size_t>(source)];
        if (source == rank_ || from.broken || (any_.empty() && from.into == nullptr)) {
            return;
        }
        const dtl_status_t status = slot([&] {
            if (!from.first) {
                from.first.emplace(comm_->irecv(as_bytes(&from.header), sizeof from.header, source, 0));
            }
            if (!from.first->is_done(*comm_)) {
                return DTL_SUCCESS;
            }
            if (from.into == nullptr) {
                fits(from.header, *any_.front());
                from.into = any_.front();
                any_.pop_front();
                from.into->result.source = source;
                if (from.header > 0) {
                    from.second.emplace(comm_->irecv(as_bytes(from.into->buf), from.header, source, 0));
                }
            }
            if (!from.second || from.second->is_done(*comm_)) {
                from.into->result.size_bytes = from.header;
                from.into->end(DTL_SUCCESS);
                from.into = nullptr;
                from.first.reset();
                from.second.reset();
            }
            return DTL_SUCCESS;
        });
        if (status != DTL_SUCCESS) {
            break_lane(from, source, status);
        }
    }

    /// Nothing comes from that rank any more: one receive tells so.
    void break_lane(lane &from, int source, dtl_status_t status) noexcept
    {
        from.broken = true;
        operation *told = std::exchange(from.into, nullptr);
        if (told == nullptr) {
            told = any_.front(); // there is one: else the rank would not have been asked
            any_.pop_front();
        }
        told->result.source = source;
        told->end(status);
    }

    /// What this rank sent to itself.
    void deliver_own()
    {
        for (auto message = local_.begin(); message != local_.end();) {
            operation *const op = taker(message->word);
            if (op == nullptr) {
                ++message;
                continue;
            }
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

    operation *taker(uint64_t word)
    {
        operation *op = nullptr;
        if (word == 0 && !any_.empty()) {
            op = any_.front();
            any_.pop_front();
            return op;
        }
        for (auto own = own_.begin(); own != own_.end(); ++own) {
            if ((*own)->result.match_word == word) {
                op = *own;
                own_.erase(own);
                return op;
            }
        }
        return op;
    }

    int rank_;
    std::list<operation> operations_, failed_; // their places stay
    std::vector<lane> lanes_;         // of each rank
    std::deque<operation *> any_;     // receives from any rank, in the order posted
    std::deque<operation *> own_;     // receives from this rank
    std::deque<local_message> local_;
    C *comm_;
    std::unique_ptr<C> owned_;
};

/// Whether each dtl_comm_open makes one: `C(args)`. Else there is one object, which is opened once.
template <class C>
concept opened_by_args = std::constructible_from<C, const dtl_comm_open_t &>;

} // namespace dtl::detail

#endif
