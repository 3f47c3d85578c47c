// Every text that dtl.hpp returns has the contents that the C function writes.
#include "../c/check.h"

#include <dtl.hpp>

#include <string>

// Text of a C function that takes (buf, cap, out_len), by its documented protocol: length first, then the text.
template <class F> static std::string text_of(F &&call)
{
    uint64_t length = 0;
    CHECK_OK(call(nullptr, 0, &length));
    CHECK(length > 0);
    std::string text(length + 1, '?');
    CHECK_OK(call(&text[0], text.size(), &length));
    CHECK(text.size() == length + 1 && text[length] == '\0');
    text.pop_back();
    CHECK(text.find('\0') == std::string::npos);
    return text;
}

static void explained()
{
    int32_t rank = 0;
    CHECK_OK(dtl_comm_rank(DTL_COMM_WORLD, &rank));
    CHECK(dtl::explain() == text_of(dtl_explain));
    for (int i = 0; i < 40; i++) { // longer than any first guess of its length
        const std::string name = "explained" + std::to_string(i);
        dtl::dispatcher dispatcher;
        const dtl_dispatch_key_t key = dtl::dispatch_key(DTL_OPERATION_COPY, DTL_MEMORY_HOST, DTL_MEMORY_HOST);
        dtl::registration added = dispatcher.add(name.c_str(), {key}, [](const dtl_dispatch_query_t &) {});
        dtl_dispatch_query_t query = DTL_DISPATCH_QUERY_INIT;
        query.operation = key.operation;
        query.source = query.destination = DTL_MEMORY_HOST;
        query.schedule = DTL_SCHEDULE_SEQUENTIAL;
        const std::string expected = text_of([&](char *buf, uint64_t cap, uint64_t *length) {
            return dtl_dispatch_explain(dispatcher.get(), &query, buf, cap, length);
        });
        CHECK(dispatcher.explain(query) == expected && expected.find(name) != std::string::npos);
    }
    CHECK(dtl::explain() == text_of(dtl_explain));
}

static void communicators()
{
    const dtl::comm_ref world(DTL_COMM_WORLD);
    const std::string dumped = world.dump();
    CHECK(dumped.size() > 10 && dumped.find('\0') == std::string::npos);
    char text[65536];
    CHECK_OK(dtl_comm_dump(DTL_COMM_WORLD, text, sizeof text, nullptr));
    CHECK(dumped.substr(0, 10) == std::string(text).substr(0, 10)); // times in it differ
}

static void enumerations()
{
    const std::string long_text(2000, 'x');
    const dtl::schedule tiled =
        dtl::schedule::add("texts.tiled", {dtl::attr("tile", int64_t{8}), dtl::attr("note", "none")});
    for (const char *note : {"short", long_text.c_str()}) {
        const dtl::schedule instance = tiled.instance({dtl::attr("note", note)});
        const std::string expected = text_of([&](char *buf, uint64_t cap, uint64_t *length) {
            return dtl_ev_to_json(instance, buf, cap, length);
        });
        CHECK(instance.json() == expected && expected.find(note) != std::string::npos);
        const char *name = nullptr;
        CHECK_OK(dtl_ev_name(instance, &name));
        CHECK(instance.name() == name);
        CHECK(instance.get<std::string_view>("note") == note);
    }
}

static void reasons()
{
    const char *const long_reason = "a reason that has to reach the caller as a whole, ";
    static std::string reason;
    while (reason.size() < 1000) {
        reason += long_reason;
    }
    dtl_memory_vtable_t memory = DTL_MEMORY_VTABLE_INIT;
    memory.alloc = [](void *, uint64_t, uint64_t, dtl_enum_word_t, void **) -> dtl_status_t {
        return DTL_ERROR_OUT_OF_MEMORY;
    };
    memory.free = [](void *, void *, uint64_t, uint64_t, dtl_enum_word_t) -> dtl_status_t { return DTL_SUCCESS; };
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    table.memory = &memory;
    table.is_available = [](void *, int32_t *out, char *why, uint64_t cap) -> dtl_status_t {
        *out = 0;
        std::snprintf(why, cap, "%s", reason.c_str());
        return DTL_SUCCESS;
    };
    const dtl::registered_backend mine("texts", table, nullptr);
    const dtl::backend_ref found("texts");
    int32_t yes = 1;
    char text[4096];
    CHECK_OK(dtl_backend_is_available(found.get(), &yes, text, sizeof text, nullptr));
    std::string why;
    CHECK(!found.is_available(&why) && yes == 0);
    CHECK(why == text && why.find(long_reason) != std::string::npos);
    CHECK(found.name() == "texts" && found.name() == dtl_backend_name(found.get()));

    dtl::register_environment<int>("texts.missing", "1", {"texts.no-such-environment"});
    CHECK_OK(dtl_environment_is_available("texts.missing", &yes, text, sizeof text, nullptr));
    CHECK(!dtl::environment::is_available("texts.missing", &why) && yes == 0);
    CHECK(why == text && !why.empty());
}

static void errors()
{
    try {
        dtl::backend_ref("no such backend");
        CHECK(false);
    } catch (const dtl::error &failure) {
        dtl_backend_t none = DTL_BACKEND_NULL;
        CHECK_STATUS(dtl_backend_get("no such backend", &none), failure.status());
        const std::string expected = dtl_status_name(failure.status()) + std::string(": ") + dtl_last_error();
        CHECK(failure.what() == expected);
    }
}

int main()
{
    const dtl::library library;
    explained();
    communicators();
    enumerations();
    reasons();
    errors();
    std::printf("ok\n");
}
