// A plugin that is a class for DTL's concept ReducingCommunicator: ranks are processes of one node that send datagrams to
// each other's sockets, and collectives are loops of messages that block.
#include <dtl/plugin.hpp>

#include <dtl/backend/concepts/communicator.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace {

using dtl::rank_t;
using dtl::size_type;
using clock_type = std::chrono::steady_clock;

class Mail {
    static constexpr std::size_t most = 16384; // bytes in a datagram
    static constexpr int own = 1 << 29;        // tag of the collectives

    struct head {
        int32_t source, tag; // tag below 0: the rank is there
        uint64_t size;       // of the whole message
    };
    struct message {
        int tag;
        std::vector<char> bytes;
        std::size_t there = 0; // bytes that arrived, or left
    };
    struct peer {
        sockaddr_un address{};
        socklen_t length = 0;
        bool is_there = false, is_gone = false;
        std::deque<std::shared_ptr<message>> out;
        std::deque<message> in; // the last one may be incomplete
    };

  public:
    using size_type = dtl::size_type;

    struct request {
        std::shared_ptr<message> sent;
        void *buf = nullptr;
        size_type size = 0;
        rank_t source = -1;
        int tag = 0;
    };

    explicit Mail(const dtl_comm_open_t &args)
        : rank_(std::max(args.rank, 0)), peers_(static_cast<std::size_t>(std::max(args.size, 1)))
    {
        static std::mutex lock;
        static std::map<std::pair<std::string, rank_t>, int> opened;
        int number = 0;
        {
            const std::lock_guard<std::mutex> guard(lock);
            number = opened[{args.job, rank_}]++;
        }
        const std::string name =
            "dtl-mail-" + std::to_string(std::hash<std::string>()(args.job)) + "-" + std::to_string(number) + "-";
        for (rank_t rank = 0; rank < size(); rank++) {
            const std::string path = name + std::to_string(rank);
            peer &to = at(rank);
            to.address.sun_family = AF_UNIX;
            std::memcpy(to.address.sun_path + 1, path.data(), path.size()); // abstract: goes with the process
            to.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + path.size());
        }
        fd_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd_ < 0 || ::bind(fd_, address(rank_), at(rank_).length) != 0) {
            const std::string why = std::strerror(errno);
            ::close(fd_);
            throw dtl::error(DTL_ERROR_BACKEND, "socket " + name + std::to_string(rank_) + ": " + why);
        }
        try {
            meet(clock_type::now() + std::chrono::nanoseconds(args.timeout_ns));
        } catch (...) {
            ::close(fd_);
            throw;
        }
    }
    Mail(const Mail &) = delete;
    Mail &operator=(const Mail &) = delete;
    ~Mail()
    {
        const auto until = clock_type::now() + std::chrono::seconds(5);
        const auto is_sent = [](const peer &to) { return to.out.empty() || to.is_gone; };
        while (!std::all_of(peers_.begin(), peers_.end(), is_sent) && clock_type::now() < until) {
            progress();
            std::this_thread::yield();
        }
        ::close(fd_);
    }

    rank_t rank() const noexcept { return rank_; }
    rank_t size() const noexcept { return static_cast<rank_t>(peers_.size()); }

    void send(const void *buf, size_type count, rank_t dest, int tag)
    {
        request wish = isend(buf, count, dest, tag);
        wait(wish);
    }
    void recv(void *buf, size_type count, rank_t source, int tag)
    {
        request wish = irecv(buf, count, source, tag);
        wait(wish);
    }
    request isend(const void *buf, size_type count, rank_t dest, int tag)
    {
        const auto *const bytes = static_cast<const char *>(buf);
        request wish;
        wish.sent = std::make_shared<message>(message{tag, std::vector<char>(bytes, bytes + count)});
        wish.source = dest;
        at(dest).out.push_back(wish.sent);
        flush(dest);
        return wish;
    }
    request irecv(void *buf, size_type count, rank_t source, int tag) { return {nullptr, buf, count, source, tag}; }

    bool test(request &wish)
    {
        progress();
        peer &from = at(wish.source);
        if (wish.sent != nullptr) {
            if (wish.sent->there < wish.sent->bytes.size() && from.is_gone) {
                lost(wish.source);
            }
            return wish.sent->there == wish.sent->bytes.size();
        }
        if (wish.buf == nullptr) {
            return true;
        }
        const auto found = std::find_if(from.in.begin(), from.in.end(), [&](const message &each) {
            return each.tag == wish.tag && each.there == each.bytes.size();
        });
        if (found == from.in.end()) {
            if (is_gone(wish.source)) {
                lost(wish.source);
            }
            return false;
        }
        std::memcpy(wish.buf, found->bytes.data(), std::min(wish.size, found->bytes.size()));
        from.in.erase(found);
        wish.buf = nullptr;
        return true;
    }
    void wait(request &wish)
    {
        while (!test(wish)) {
            std::this_thread::yield();
        }
    }

    void barrier()
    {
        char nothing = 0;
        std::vector<char> all(peers_.size());
        allgather(&nothing, all.data(), 1);
    }
    void broadcast(void *buf, size_type count, rank_t root)
    {
        if (rank_ != root) {
            return recv(buf, count, root, own);
        }
        for (rank_t to = 0; to < size(); to++) {
            if (to != root) {
                send(buf, count, to, own);
            }
        }
    }
    void scatter(const void *sendbuf, void *recvbuf, size_type count, rank_t root)
    {
        for (rank_t to = 0; rank_ == root && to < size(); to++) {
            pass(part(sendbuf, to, count), recvbuf, count, to);
        }
        if (rank_ != root) {
            recv(recvbuf, count, root, own);
        }
    }
    void gather(const void *sendbuf, void *recvbuf, size_type count, rank_t root)
    {
        if (rank_ != root) {
            return send(sendbuf, count, root, own);
        }
        std::memcpy(part(recvbuf, root, count), sendbuf, count);
        for (rank_t from = 0; from < size(); from++) {
            if (from != root) {
                recv(part(recvbuf, from, count), count, from, own);
            }
        }
    }
    void allgather(const void *sendbuf, void *recvbuf, size_type count)
    {
        gather(sendbuf, recvbuf, count, 0);
        broadcast(recvbuf, count * peers_.size(), 0);
    }
    void alltoall(const void *sendbuf, void *recvbuf, size_type count)
    {
        std::vector<request> pending;
        for (rank_t to = 0; to < size(); to++) {
            if (to != rank_) {
                pending.push_back(isend(part(sendbuf, to, count), count, to, own));
            }
        }
        std::memcpy(part(recvbuf, rank_, count), part(sendbuf, rank_, count), count);
        for (rank_t from = 0; from < size(); from++) {
            if (from != rank_) {
                recv(part(recvbuf, from, count), count, from, own);
            }
        }
        for (request &each : pending) {
            wait(each);
        }
    }
    void reduce_sum(const void *sendbuf, void *recvbuf, size_type count, rank_t root)
    {
        std::vector<double> all(count * (rank_ == root ? peers_.size() : 0));
        gather(sendbuf, all.data(), count * sizeof(double), root);
        for (size_type i = 0; rank_ == root && i < count; i++) {
            double sum = all[i];
            for (size_type j = i + count; j < all.size(); j += count) {
                sum += all[j];
            }
            static_cast<double *>(recvbuf)[i] = sum;
        }
    }
    void allreduce_sum(const void *sendbuf, void *recvbuf, size_type count)
    {
        reduce_sum(sendbuf, recvbuf, count, 0);
        broadcast(recvbuf, count * sizeof(double), 0);
    }

  private:
    peer &at(rank_t rank) noexcept { return peers_[static_cast<std::size_t>(rank)]; }
    const sockaddr *address(rank_t rank) noexcept { return reinterpret_cast<const sockaddr *>(&at(rank).address); }
    static const char *part(const void *data, rank_t which, size_type size)
    {
        return static_cast<const char *>(data) + static_cast<size_type>(which) * size;
    }
    static char *part(void *data, rank_t which, size_type size)
    {
        return static_cast<char *>(data) + static_cast<size_type>(which) * size;
    }
    void pass(const void *from, void *to, size_type count, rank_t rank)
    {
        if (rank == rank_) {
            std::memcpy(to, from, count);
        } else {
            send(from, count, rank, own);
        }
    }
    [[noreturn]] static void lost(rank_t rank)
    {
        throw dtl::error(DTL_ERROR_RANK_FAILURE, "rank " + std::to_string(rank) + " has closed its socket");
    }

    /// Sends a sign of life to each rank, and waits for those of all.
    void meet(clock_type::time_point until)
    {
        const head sign{rank_, -1, 0};
        std::vector<bool> signed_to(peers_.size());
        at(rank_).is_there = true;
        for (;;) {
            std::string missing;
            for (rank_t to = 0; to < size(); to++) {
                if (to != rank_ && !signed_to[static_cast<std::size_t>(to)]) {
                    signed_to[static_cast<std::size_t>(to)] =
                        ::sendto(fd_, &sign, sizeof sign, MSG_NOSIGNAL, address(to), at(to).length) >= 0;
                }
                if (!at(to).is_there || (to != rank_ && !signed_to[static_cast<std::size_t>(to)])) {
                    missing += " " + std::to_string(to);
                }
            }
            if (missing.empty()) {
                return;
            }
            if (clock_type::now() > until) {
                throw dtl::error(DTL_ERROR_TIMEOUT, "these ranks have not opened it:" + missing);
            }
            take();
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }

    void progress()
    {
        for (rank_t to = 0; to < size(); to++) {
            flush(to);
        }
        take();
    }

    void flush(rank_t rank)
    {
        peer &to = at(rank);
        while (!to.out.empty() && !to.is_gone) {
            message &first = *to.out.front();
            head what{rank_, first.tag, first.bytes.size()};
            iovec parts[] = {{&what, sizeof what},
                             {first.bytes.data() + first.there, std::min(most, first.bytes.size() - first.there)}};
            msghdr datagram{};
            datagram.msg_name = &to.address, datagram.msg_namelen = to.length;
            datagram.msg_iov = parts, datagram.msg_iovlen = 2;
            if (::sendmsg(fd_, &datagram, MSG_NOSIGNAL) < 0) {
                to.is_gone = errno != EAGAIN && errno != EINTR && errno != ENOBUFS;
                return;
            }
            first.there += parts[1].iov_len;
            if (first.there == first.bytes.size()) {
                to.out.pop_front();
            }
        }
    }

    void take()
    {
        alignas(head) char bytes[sizeof(head) + most];
        ssize_t got;
        while ((got = ::recv(fd_, bytes, sizeof bytes, 0)) >= static_cast<ssize_t>(sizeof(head))) {
            head what;
            std::memcpy(&what, bytes, sizeof what);
            peer &from = at(what.source);
            from.is_there = true;
            if (what.tag < 0) {
                continue;
            }
            if (from.in.empty() || from.in.back().there == from.in.back().bytes.size()) {
                from.in.push_back({what.tag, std::vector<char>(what.size)});
            }
            message &last = from.in.back();
            const auto size = static_cast<std::size_t>(got) - sizeof what;
            std::memcpy(last.bytes.data() + last.there, bytes + sizeof what, size);
            last.there += size;
        }
    }

    /// Whether a rank has closed its socket, and all that it sent is here. Looks every few milliseconds.
    bool is_gone(rank_t rank)
    {
        const auto now = clock_type::now();
        if (now > next_look_) {
            next_look_ = now + std::chrono::milliseconds(5);
            const int probe = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
            for (rank_t each = 0; each < size() && probe >= 0; each++) {
                at(each).is_gone |= ::connect(probe, address(each), at(each).length) != 0 && errno == ECONNREFUSED;
            }
            ::close(probe);
            take();
            return false; // the next test finds what just came
        }
        return at(rank).is_gone;
    }

    rank_t rank_;
    int fd_ = -1;
    std::vector<peer> peers_;
    clock_type::time_point next_look_{};
};

static_assert(dtl::ReducingCommunicator<Mail>);

} // namespace

DTL_PLUGIN_CLASSES("mail", "1.0", Mail)
