// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <serve/shared_regions.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <support/complaint.hpp>
#include <variant>
#include <vector>

namespace cohort::serve::shared_regions_test {
namespace {

using namespace std::chrono_literals;
using runtime::data_type;

/// Shared memory as a client makes it.
class segment {
 public:
  explicit segment(std::size_t bytes, const std::string& suffix = "")
      : key{"/cohort_test_" + std::to_string(getpid()) + suffix},
        fd_{shm_open(key.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600)} {
    REQUIRE(fd_ >= 0);
    resize(bytes);
  }
  ~segment() {
    close(fd_);
    shm_unlink(key.c_str());
  }
  segment(const segment&) = delete;
  segment& operator=(const segment&) = delete;
  void resize(std::size_t bytes) const { REQUIRE(ftruncate(fd_, static_cast<off_t>(bytes)) == 0); }
  [[nodiscard]] std::size_t bytes() const {
    return static_cast<std::size_t>(lseek(fd_, 0, SEEK_END));
  }
  template <class T>
  void put(std::size_t at, const std::vector<T>& values) const {
    const std::size_t n = values.size() * sizeof(T);
    REQUIRE(pwrite(fd_, values.data(), n, static_cast<off_t>(at)) == static_cast<ssize_t>(n));
  }
  template <class T>
  [[nodiscard]] std::vector<T> get(std::size_t at, std::size_t count) const {
    std::vector<T> values(count);
    const std::size_t n = count * sizeof(T);
    REQUIRE(pread(fd_, values.data(), n, static_cast<off_t>(at)) == static_cast<ssize_t>(n));
    return values;
  }
  [[nodiscard]] std::string description(const std::string& rest) const {
    return R"({"key":")" + key + "\"," + rest + "}";
  }
  const std::string key;

 private:
  int fd_;
};

std::string why_not(shared_regions& all, const std::string& name, const std::string& body) {
  const auto e = all.enter(name, body);
  if (e) CHECK(e->status == 400);
  return e ? e->message : "";
}
bool has(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

TEST_CASE("a region is registered, shown, found and forgotten") {
  const segment s{64};
  shared_regions all;
  CHECK(std::get<std::string>(all.status()) == "[]");
  CHECK(why_not(all, "r", s.description(R"("offset":16,"byte_size":48)")).empty());
  CHECK(why_not(all, "q", s.description(R"("byte_size":64)")).empty());
  const std::string shown = R"({"name":"r","key":")" + s.key + R"(","offset":16,"byte_size":48})";
  CHECK(std::get<std::string>(all.status("r")) == "[" + shown + "]");
  CHECK(has(std::get<std::string>(all.status()), "," + shown + "]"));
  CHECK(test::gist{std::get<protocol_error>(all.status("s")).message} ==
        "... region 's' ... unknown");
  CHECK(all.find("s") == nullptr);
  CHECK(why_not(all, "r", s.description(R"("byte_size":1)")) ==
        "shared memory region 'r' is registered already");
  all.leave("nobody");
  all.leave("r");
  CHECK(all.find("r") == nullptr);
  CHECK(all.find("q") != nullptr);
  all.clear();
  CHECK(all.find("q") == nullptr);
}

TEST_CASE("what is no part of a segment is not registered") {
  const segment s{64};
  shared_regions all;
  const auto with = [&](const std::string& rest) {
    return test::gist{why_not(all, "r", s.description(rest))};
  };
  const std::string more = " ... '" + s.key + "' ... 64 bytes";
  CHECK(with(R"("byte_size":65)") == "offset ... 0 ... byte_size ... 65" + more);
  CHECK(with(R"("offset":64,"byte_size":1)") == "offset ... 64 ... byte_size ... 1" + more);
  CHECK(with(R"("offset":18446744073709551615,"byte_size":2)") == "offset" + more);
  CHECK(with(R"("offset":2,"byte_size":18446744073709551615)") == "offset" + more);
  CHECK(with(R"("byte_size":0)") == "byte_size ... 0 ... at least 1");
  CHECK(has(with(R"("offset":-1,"byte_size":1)"), "offset must be a whole number of bytes from 0"));
  CHECK(has(with(R"("byte_size":"1")"), "byte_size must be a whole number of bytes from 0"));
  CHECK(with(R"("offset":0)") == "byte_size ... missing");
  CHECK(test::gist{why_not(all, "r", R"({"byte_size":1})")} == "key ... missing");
  CHECK(test::gist{why_not(all, "r", "[")} == "... body ... JSON");
  CHECK(has(why_not(all, "r", R"({"key":"/cohort_nobody_has_it","byte_size":1})"),
            "cannot be opened: No such file or directory"));
  for (const std::string key :
       {"", "/", "/..", "..", "/a/b", "//a", "/../etc/passwd", "/a\\u0000b", "/a\\nb"}) {
    CAPTURE(key);
    CHECK(why_not(all, "r", R"({"byte_size":1,"key":")" + key + "\"}").starts_with("key is \""));
  }
  CHECK(has(why_not(all, "r", R"({"byte_size":1,"key":")" + std::string(256, 'k') + "\"}"),
            "1 to 255 characters"));
  for (const std::string& name : {std::string{}, std::string(256, 'n'), std::string{"a\nb"}}) {
    CHECK(has(why_not(all, name, s.description(R"("byte_size":1)")), "name is not one"));
  }
  CHECK(std::get<std::string>(all.status()) == "[]");
}

TEST_CASE("no more regions are registered than the server has files for") {
  const segment s{64};
  shared_regions all;
  for (std::size_t i = 0; i < shared_regions::most; ++i) {
    CHECK(why_not(all, std::to_string(i), s.description(R"("byte_size":1)")).empty());
  }
  CHECK(has(why_not(all, "more", s.description(R"("byte_size":1)")), "at most"));
  all.leave("7");
  CHECK(why_not(all, "more", s.description(R"("byte_size":1)")).empty());
}

TEST_CASE(
    "a segment that is made shorter fails what is read and written beyond its end, and no more") {
  const segment s{64};
  shared_regions all;
  CHECK(why_not(all, "r", s.description(R"("offset":8,"byte_size":56)")).empty());
  const auto r = all.find("r");
  all.clear();  // Whoever has it goes on.
  std::vector<std::byte> bytes(16, std::byte{7});
  CHECK(r->write(40, bytes).empty());
  CHECK(s.get<char>(48, 16) == std::vector<char>(16, 7));
  s.resize(60);
  const std::string shorter = "shared memory region 'r' is shorter than when it was registered";
  CHECK(r->read(40, bytes) == shorter);
  CHECK(r->write(40, bytes) == shorter);
  CHECK(r->write(52, {}).empty());
  CHECK(r->write(53, {}) == shorter);
  CHECK(s.bytes() == 60);
  CHECK(r->read(0, bytes).empty());
  CHECK(bytes == std::vector<std::byte>(16));
  s.resize(0);
  CHECK(r->read(0, bytes) == shorter);
  CHECK(r->write(0, bytes) == shorter);
}

const model_meta pair{"m",
                      "test",
                      {{"x", data_type::f32, {2}}, {"b", data_type::boolean, {1}}},
                      {{"y", data_type::f32, {2}}, {"h", data_type::f16, {1}}},
                      20ms};
const model_meta texts{.name = "t",
                       .platform = "test",
                       .inputs = {{"x", data_type::bytes, {-1}}},
                       .outputs = {{"y", data_type::bytes, {-1}}},
                       .batches = false,
                       .is_open = true,
                       .runs_alone = true};

std::string place(const std::string& region, const std::string& bytes,
                  const std::string& offset = "") {
  return R"("parameters":{"shared_memory_region":")" + region + R"(","shared_memory_byte_size":)" +
         bytes + (offset.empty() ? "" : R"(,"shared_memory_offset":)" + offset) + "}";
}
/// A request for two rows of `pair`.
std::string request(const std::string& x, const std::string& b,
                    const std::string& outputs = R"({"name":"y"})") {
  return R"({"inputs":[{"name":"x","datatype":"FP32","shape":[2,2],)" + x +
         R"(},{"name":"b","datatype":"BOOL","shape":[2,1],)" + b + "}]" + R"(,"outputs":[)" +
         outputs + "]}";
}
std::string output(const std::string& name, const std::string& rest) {
  return R"({"name":")" + name + "\"," + rest + "}";
}

struct fixture {
  fixture() {
    CHECK(why_not(all, "r", s.description(R"("offset":8,"byte_size":56)")).empty());
    s.put<float>(8, {1, 2, 3, 4});
    s.put<char>(24, {0, 1, 2});
  }
  auto parse(const std::string& body, const model_meta& m = pair, std::size_t most = 1000) {
    return parser.parse(body, m, {}, {.regions = &all, .most = most});
  }
  std::string complaint(const std::string& body, const model_meta& m = pair,
                        std::size_t most = 1000) {
    const auto r = parse(body, m, most);
    const auto* const e = std::get_if<protocol_error>(&r);
    if (e == nullptr) return "";
    CHECK(e->status == 400);
    return e->message;
  }
  segment s{64};
  shared_regions all;
  infer_parser parser{4};
};
const std::string in_memory = place("r", "16", "0");
const std::string flags = place("r", "2", "16");

TEST_CASE_FIXTURE(fixture, "inputs come from shared memory, beside others") {
  const std::string bodies[] = {request(in_memory, flags),
                                request(in_memory, R"("data":[false,true])"),
                                request(R"("data":[1,2,3,4])", flags)};
  for (const std::string& body : bodies) {
    auto parsed = parse(body);
    const auto* const r = std::get_if<infer_request>(&parsed);
    REQUIRE(r != nullptr);
    std::vector<float> x(4);
    std::memcpy(x.data(), r->inputs[0].data(), 16);
    CHECK(x == std::vector<float>{1, 2, 3, 4});
    CHECK(r->inputs[1][0] == std::byte{0});
    CHECK(r->inputs[1][1] == std::byte{1});
    s.put<float>(8, {9});  // It is a copy.
    CHECK(std::memcmp(x.data(), r->inputs[0].data(), 16) == 0);
    s.put<float>(8, {1});
  }
}

TEST_CASE_FIXTURE(fixture, "inputs that shared memory does not have are refused") {
  const auto of = [&](const std::string& x) { return complaint(request(x, flags)); };
  const std::string in = "inputs[0].parameters.";
  CHECK(of(place("q", "16")) == in + "shared_memory_region: shared memory region \"q\" is unknown: "
                                     "expected one that was registered");
  CHECK(of(place("r", "16", "41")) == in + "shared_memory_offset is 41 and shared_memory_byte_size "
                                           "16, but region 'r' has 56 bytes");
  CHECK(has(of(place("r", "16", "18446744073709551615")), "but region 'r' has 56 bytes"));
  CHECK(has(of(place("r", "18446744073709551615", "8")), "but region 'r' has 56 bytes"));
  for (const char* bad : {"-1", "1.5", "\"16\"", "18446744073709551616"}) {
    CHECK(has(of(place("r", "16", bad)), in + "shared_memory_offset must be a whole number") !=
          has(of(place("r", "16", bad)), "not valid JSON"));
    CHECK_FALSE(of(place("r", bad)).empty());
  }
  CHECK(of(place("r", "12")) == in + "shared_memory_byte_size is 12, but its shape says 16");
  CHECK(of(R"("parameters":{"shared_memory_byte_size":16})") ==
        in + "shared_memory_region is missing");
  CHECK(of(R"("parameters":{"shared_memory_region":"r"})") ==
        in + "shared_memory_byte_size is missing");
  CHECK(of(R"("parameters":{"shared_memory_region":1})") ==
        in + "shared_memory_region must be a string, not a number");
  // Parameters without a meaning cost no more than to be read.
  std::string many = in_memory.substr(0, in_memory.size() - 1);
  for (int i = 0; i < 200'000; ++i) many += R"(,"shared_memory_x":0)";
  CHECK(of(many + "}").empty());
  CHECK(of(in_memory + R"(,"data":[1,2,3,4])") ==
        "inputs[0].data and " + in + "shared_memory_region are both given");
  CHECK(has(of(R"("parameters":{"shared_memory_region":"r","shared_memory_byte_size":16,)"
               R"("binary_data_size":16})"),
            "are both given"));
  CHECK(has(complaint(request(in_memory, place("r", "2", "17"))), "inputs[1]"));  // 2 is no BOOL.
  CHECK(complaint(request(in_memory, flags), pair, 17) ==
        "inputs have 18 bytes in shared memory, expected at most 17");
  s.resize(20);
  CHECK(of(in_memory) ==
        "inputs[0]: shared memory region 'r' is shorter than when it was registered");
}

TEST_CASE_FIXTURE(fixture, "without shared memory a request hears why there is none") {
  const auto r = parser.parse(request(in_memory, flags), pair, {}, {.why_none = "is not here"});
  CHECK(std::get<protocol_error>(r).message ==
        "inputs[0].parameters.shared_memory_region is not here");
}

TEST_CASE_FIXTURE(fixture, "outputs go to shared memory, and not into the answer") {
  const runtime::row_layout layout{pair.outputs, 1};
  std::vector<std::byte> rows(2 * layout.bytes());
  const std::vector<float> y{5, 6, 7, 8};
  const std::uint16_t h[] = {0x1234, 0x5678};
  for (std::size_t row = 0; row < 2; ++row) {
    std::memcpy(rows.data() + row * layout.bytes() + layout.offset(0), &y[2 * row], 8);
    std::memcpy(rows.data() + row * layout.bytes() + layout.offset(1), &h[row], 2);
  }
  const auto answer = [&](const std::string& outputs) -> std::string {
    auto parsed = parse(request(in_memory, flags, outputs));
    auto* const r = std::get_if<infer_request>(&parsed);
    if (r == nullptr) return std::get<protocol_error>(parsed).message;
    all.leave("r");  // Nothing that is under way loses its region.
    const auto written = write_infer_response(pair, layout, *r, rows);
    CHECK(why_not(all, "r", s.description(R"("offset":8,"byte_size":56)")).empty());
    if (const auto* e = std::get_if<protocol_error>(&written)) return e->message;
    return std::get<infer_answer>(written).body;
  };
  const std::string both =
      output("h", place("r", "4", "40")) + "," + output("y", place("r", "16", "24"));
  CHECK(answer(both) == R"({"model_name":"m","model_version":"1","outputs":[)"
                        R"({"name":"h","datatype":"FP16","shape":[2,1]},)"
                        R"({"name":"y","datatype":"FP32","shape":[2,2]}]})");
  CHECK(s.get<float>(32, 4) == y);
  CHECK(s.get<std::uint16_t>(48, 2) == std::vector<std::uint16_t>{0x1234, 0x5678});
  // With others, as JSON and as binary data.
  CHECK(has(answer(output("h", place("r", "4", "44")) + R"(,{"name":"y"})"),
            R"({"name":"h","datatype":"FP16","shape":[2,1]},{"name":"y","datatype":"FP32",)"
            R"("shape":[2,2],"data":[5,6,7,8]}]})"));
  CHECK(has(answer(output("h", place("r", "4", "44")) +
                   R"(,{"name":"y","parameters":{"binary_data":true}})"),
            R"("parameters":{"binary_data_size":16}}]})"));
  CHECK(s.get<std::uint16_t>(52, 2) == std::vector<std::uint16_t>{0x1234, 0x5678});
  // Whatever is wrong, nothing was written.
  s.put<char>(32, std::vector<char>(32));
  CHECK(answer(output("h", place("r", "4", "24")) + "," + output("y", place("r", "15", "28"))) ==
        "output 'y': its values have 16 bytes, but its shared_memory_byte_size is 15");
  CHECK(answer(output("h", place("r", "4", "27")) + "," + output("y", place("r", "16", "30"))) ==
        "outputs 'h' and 'y' overlap in shared memory region 'r'");
  CHECK(has(answer(output("h", R"("parameters":{"classification":1,"shared_memory_region":"r",)"
                               R"("shared_memory_byte_size":8})")),
            "classification"));
  const auto parsed = parse(request(in_memory, flags, both));
  s.resize(50);
  const auto cut = write_infer_response(pair, layout, std::get<infer_request>(parsed), rows);
  CHECK(std::get<protocol_error>(cut).message ==
        "output 'h': shared memory region 'r' is shorter than when it was registered");
  CHECK(std::get<protocol_error>(cut).status == 400);
  CHECK(s.bytes() == 50);
  CHECK(s.get<char>(32, 18) == std::vector<char>(18));
}

TEST_CASE_FIXTURE(fixture, "strings in shared memory have their lengths before them") {
  s.put<char>(8, {1, 0, 0, 0, 'a', 2, 0, 0, 0, 'b', 'c'});
  const auto asked = [](const std::string& bytes) {
    return R"({"inputs":[{"name":"x","datatype":"BYTES","shape":[2],)" + place("r", bytes) +
           R"(}],"outputs":[)" + output("y", place("r", "40", "16")) + "]}";
  };
  const auto parsed = parse(asked("11"), texts);
  const auto& r = std::get<infer_request>(parsed);
  std::span<const std::byte> rest = r.inputs[0];
  CHECK(runtime::take_string(rest) == "a");
  CHECK(runtime::take_string(rest) == "bc");
  CHECK(has(complaint(asked("10"), texts), "string 1 of 'x' is longer"));
  CHECK(has(complaint(asked("12"), texts), "1 bytes of binary data are left over"));
  const std::vector<runtime::shaped_tensor> out{{{2}, r.inputs[0], {}}};
  infer_writer w{texts, r, out};
  CHECK(std::get<infer_answer>(write_infer_response(w)).body ==
        R"({"model_name":"t","model_version":"1","outputs":[{"name":"y","datatype":"BYTES",)"
        R"("shape":[2]}]})");
  CHECK(s.get<char>(24, 11) == std::vector<char>{1, 0, 0, 0, 'a', 2, 0, 0, 0, 'b', 'c'});
}

}  // namespace
}  // namespace cohort::serve::shared_regions_test
