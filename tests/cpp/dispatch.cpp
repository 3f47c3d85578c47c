// dtl.hpp: dispatchers.
#include "../c/check.h"

#include <dtl.hpp>

#include "thrown.hpp"

#include <cstring>
#include <memory>
#include <stdexcept>

static constexpr dtl_enum_word_t memory = 0x0001'03e9'0000'0000, operation = 0x0006'03e9'0000'0000;
static_assert(dtl::dispatch_key(operation, memory).source == memory, "a key is made in a constant");

static void functions()
{
    const auto alive = std::make_shared<int>(0);
    const dtl_dispatch_query_t query = dtl::dispatch_query(operation, memory);
    {
        const dtl::dispatcher all;
        bool is_wanted = false;
        const auto plain = all.add("plain", {dtl::dispatch_key(operation)}, [alive](const dtl_dispatch_query_t &asked) {
            CHECK(asked.source == memory);
            ++*alive;
        });
        {
            const auto wanted = all.add_if(
                "wanted", {dtl::dispatch_key(operation, memory)},
                [&](const dtl_dispatch_query_t &) { return is_wanted; },
                [](const dtl_dispatch_query_t &) -> dtl_status_t { throw std::runtime_error("broken"); });
            CHECK(all.find(query).id == plain.get().id);
            is_wanted = true;
            CHECK(all.find(query).id == wanted.get().id);
            CHECK(thrown([&] { all.invoke(query); }) == DTL_ERROR_BACKEND);
            CHECK(std::strstr(dtl_last_error(), "broken") != nullptr);
            CHECK(all.explain(query).find("chosen: \"wanted\"") != std::string::npos);
        }
        all.invoke(query);
        CHECK(*alive == 1 && alive.use_count() == 2);
        const auto fails = all.add_if(
            "fails", {dtl::dispatch_key(operation, memory)},
            [](const dtl_dispatch_query_t &) -> bool { throw dtl::error(DTL_ERROR_BUSY, "no time"); },
            [](const dtl_dispatch_query_t &) {});
        CHECK(thrown([&] { all.find(query); }) == DTL_ERROR_BUSY);
        // What could not be registered goes at once.
        CHECK(thrown([&] { all.add("again", {dtl::dispatch_key(operation)}, [alive](const dtl_dispatch_query_t &) {}); }) ==
              DTL_ERROR_ALREADY_EXISTS);
        CHECK(alive.use_count() == 2);
    }
    CHECK(alive.use_count() == 1);
}

static void of_the_library()
{
    char from[4] = "abc", to[4] = "";
    const dtl::dispatcher_ref library;
    {
        const auto none = library.forbid("closed", {dtl::dispatch_key(DTL_OPERATION_COPY)}, "the door is locked");
        CHECK(thrown([&] { dtl::check(dtl_mem_copy(to, from, 4)); }) == DTL_ERROR_NOT_SUPPORTED);
        CHECK(std::strstr(dtl_last_error(), "the door is locked") != nullptr);
    }
    dtl::check(dtl_mem_copy(to, from, 4));
    CHECK(std::strcmp(from, to) == 0);
    const auto host = library.add("host", {dtl::dispatch_key(DTL_OPERATION_ALLOC, DTL_DISPATCH_ANY, memory)},
                                  dtl::backend_ref("host"));
    CHECK(thrown([&] { dtl::buffer<int> none(4, memory); }) == DTL_ERROR_NOT_SUPPORTED); // the host has no such kind
}

int main()
{
    const dtl::library library;
    dtl_enum_word_t word;
    CHECK_OK(dtl_enum_register_value(DTL_ENUM_MEMORY, "Bench", 0x3e9, &word));
    CHECK(word == memory);
    CHECK_OK(dtl_enum_register_value(DTL_ENUM_OPERATION, "Weigh", 0x3e9, &word));
    CHECK(word == operation);
    functions();
    of_the_library();
    return 0;
}
