// SPDX-License-Identifier: Apache-2.0
#include <cohort/runtime/onnx/open_model.hpp>

#include <doctest/doctest.h>
#include <cohort/core/error.hpp>
#include <cohort/runtime/host.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <support/complaint.hpp>
#include "onnx_fixture.hpp"

namespace cohort::runtime::onnx::open_model_test {
namespace {

using host_model = open_model<host_executor>;
using test::onnx_builder;
static_assert(staged_model<host_model, host_executor::stream>);
using shape = std::vector<std::int64_t>;

std::shared_ptr<const session> load_open(const formats::onnx_model& m,
                                         session_options options = {}) {
  options.may_be_open = true;
  return load(m, std::move(options));
}

template <class T>
shaped_tensor tensor(shape s, const std::vector<T>& values) {
  const auto bytes = std::make_shared<const std::vector<std::byte>>(bytes_of(values));
  return {std::move(s), *bytes, bytes};
}

std::vector<shaped_tensor> run(const session& s, const std::vector<shaped_tensor>& inputs) {
  run_end end{s};
  return s.run_shaped(inputs, end, nullptr);
}

/// An image of `pooled` whose elements are 0, 1, 2, ...
shaped_tensor image(std::int64_t rows, std::int64_t height, std::int64_t width) {
  std::vector<float> values(static_cast<std::size_t>(rows * 2 * height * width));
  std::iota(values.begin(), values.end(), 0.0F);
  return tensor({rows, 2, height, width}, values);
}

TEST_CASE("a model with several open dimensions is open where it may be, and an error where not") {
  CHECK(test::gist_of<config_error>([] {
          static_cast<void>(load(test::pooled()));
        }).find("dimension 3 is dynamic") != std::string::npos);
  const auto s = load_open(test::pooled());
  CHECK(s->is_open());
  CHECK_FALSE(s->has_batch());
  CHECK_FALSE(s->pads());
  REQUIRE(s->interface().inputs.size() == 1);
  CHECK(s->interface().inputs[0].shape == shape{-1, 2, -1, -1});
  CHECK(s->interface().outputs[0].shape == shape{-1, 2, -1, -1});  // ONNX Runtime knows the 2.
  CHECK(s->sample_shapes() == std::vector<shape>{{1, 2, 64, 64}});
  std::byte some{};
  const std::byte* in = &some;
  std::byte* out = &some;
  CHECK(test::gist_of<config_error>([&] { s->run({&in, 1}, {&out, 1}, 1); }) ==
        "model 'pooled': ... open: ... rows");
  // What has rows has them as before.
  const auto rows = load_open(test::mlp());
  CHECK_FALSE(rows->is_open());
  CHECK(rows->has_batch());
  CHECK(test::gist_of<config_error>([&] { static_cast<void>(run(*rows, {})); }) ==
        "model 'mlp': ... rows: ... open");
  CHECK(test::gist_of<config_error>([&] { static_cast<void>(run(*s, {})); }) ==
        "model 'pooled': ... inputs ... 0: ... 1");
}

TEST_CASE("each run has its own shapes, and outputs as long as they are") {
  const auto s = load_open(test::pooled());
  const auto small = run(*s, {image(1, 2, 4)});
  REQUIRE(small.size() == 2);
  CHECK(small[0].shape == shape{1, 2, 1, 2});
  CHECK(values_of<float>(small[0].bytes) == std::vector<float>{5, 7, 13, 15});
  CHECK(small[1].shape == shape{1, 2, 2});
  CHECK(values_of<float>(small[1].bytes) == std::vector<float>{1, 5, 9, 13});
  const auto large = run(*s, {image(2, 5, 2)});  // The fifth line has no pair.
  CHECK(large[0].shape == shape{2, 2, 2, 1});
  CHECK(values_of<float>(large[0].bytes) == std::vector<float>{3, 7, 13, 17, 23, 27, 33, 37});
  CHECK_THROWS_AS(static_cast<void>(run(*s, {image(1, 4, 1)})), device_error);
  CHECK_THROWS_AS(static_cast<void>(run(*s, {tensor<float>({1, 2, 2, 4}, {1, 2})})), device_error);
}

TEST_CASE("rows may be any dimension, and tensors single numbers") {
  const auto s = load_open(test::recurrent());
  REQUIRE(s->is_open());
  CHECK(s->interface().inputs[1].shape == shape{2, -1, 3});
  CHECK(s->interface().inputs[2].shape == shape{});
  CHECK(s->sample_shapes() == std::vector<shape>{{1, 64}, {2, 1, 3}, {}});
  const auto out = run(
      *s, {tensor<float>({2, 3}, {1, 2, 3, 4, 5, 6}),
           tensor<float>({2, 2, 3}, std::vector<float>(12, 0.5F)), tensor<std::int64_t>({}, {7})});
  CHECK(values_of<float>(out[0].bytes) == std::vector<float>{6, 15});
  CHECK(out[1].shape == shape{2, 2, 3});
  CHECK(values_of<float>(out[1].bytes) == std::vector<float>(12, 7.5F));
  // Lengths of 0, and those of one name that differ: some operators do not survive them.
  const auto refused = [&](const shape& audio, const shape& state, const shape& rate) {
    const auto zeros = [](const shape& of) {
      std::size_t n = 1;
      for (const std::int64_t d : of) n *= static_cast<std::size_t>(d);
      return n;
    };
    return test::gist_of<device_error>([&] {
      static_cast<void>(run(*s, {tensor(audio, std::vector<float>(zeros(audio))),
                                 tensor(state, std::vector<float>(zeros(state))),
                                 tensor(rate, std::vector<std::int64_t>(zeros(rate)))}));
    });
  };
  CHECK(refused({1, 4}, {2, 1, 3}, {}) == "no error");
  CHECK(refused({1, 0}, {2, 1, 3}, {}) ==
        "model 'recurrent': input 'audio', dimension 1 ... 0: ... at least 1");
  CHECK(refused({2, 4}, {2, 1, 3}, {}) ==
        "model 'recurrent': input 'state', dimension 1 ... 1: ... 2");
  CHECK(refused({1, 4}, {2, 1, 4}, {}) ==
        "model 'recurrent': input 'state', dimension 2 ... 4: ... 3");
  CHECK(refused({1, 4}, {2, 1, 3}, {1}) ==
        "model 'recurrent': input 'rate' ... 1 dimensions: ... 0");
}

TEST_CASE("stated shapes close a model, and then it has rows") {
  const auto s = load_open(test::pooled(), {.shapes = {{"x", {-1, -1, 4, 6}}}});
  CHECK_FALSE(s->is_open());
  CHECK(s->has_batch());
  CHECK(s->interface().inputs[0].shape == shape{2, 4, 6});
  CHECK(s->interface().outputs[0].shape == shape{2, 2, 3});
  CHECK(s->interface().outputs[1].shape == shape{2, 4});
  // Of others, of another rank, or of one that the file says itself: nothing.
  for (const stated_shape& other : {stated_shape{"z", {1, 2, 4, 6}}, stated_shape{"x", {4, 6}},
                                    stated_shape{"x", {-1, 3, 0, -1}}}) {
    CHECK(load_open(test::pooled(), {.shapes = {other}})->interface().inputs[0].shape ==
          shape{-1, 2, -1, -1});
  }
}

/// A model on a stream, and rows of numbers for it.
struct device {
  explicit device(std::shared_ptr<open_runs> r) : runs{std::move(r)} {}
  struct how {
    std::uint8_t* unfit = nullptr;
    const std::atomic<bool>* given_up = nullptr;
    bool is_sample = false;
    bool is_whole = false;
  };
  /// @returns What failed; empty if nothing.
  std::string run(std::vector<std::uint64_t> numbers, how h) {
    std::vector<std::uint64_t> out(numbers.size());
    const slice s{.input = reinterpret_cast<std::byte*>(numbers.data()),
                  .output = reinterpret_cast<std::byte*>(out.data()),
                  .input_stride = sizeof(std::uint64_t),
                  .output_stride = sizeof(std::uint64_t),
                  .first = 0,
                  .count = static_cast<std::uint32_t>(numbers.size()),
                  .unfit = h.unfit,
                  .given_up = h.given_up,
                  .is_sample = h.is_sample,
                  .is_whole = h.is_whole};
    model.enqueue(0, stream, s);
    return failure_of(e, stream);
  }
  std::string run(std::vector<std::uint64_t> numbers) { return run(std::move(numbers), how{}); }

  std::shared_ptr<open_runs> runs;
  host_executor e{{.pool_bytes = 1U << 16U}};
  host_executor::stream stream = e.make_stream();
  host_model model{e, runs};
};

std::shared_ptr<open_run> request(std::vector<shaped_tensor> inputs) {
  return std::make_shared<open_run>(std::move(inputs));
}

TEST_CASE("a row is a request's number, and a slice of one request is one run") {
  const auto runs = std::make_shared<open_runs>(load_open(test::pooled()));
  CHECK(runs->sample_weight() == 2 * 64 * 64 * 4);
  device d{runs};
  CHECK(d.model.boundary_bytes(0) == 8);
  const auto one = request({image(1, 2, 2)});
  const auto two = request({image(1, 4, 2)});
  const std::uint64_t first = runs->enter(one);
  const std::uint64_t second = runs->enter(two);
  CHECK(first != open_runs::sample_number);
  CHECK(d.run({first, second}) == "");
  CHECK(values_of<float>(one->outputs()[0].bytes) == std::vector<float>{3, 7});
  CHECK(values_of<float>(two->outputs()[0].bytes) == std::vector<float>{3, 7, 11, 15});
  const auto three = request({image(1, 2, 2)});
  CHECK(d.run({runs->enter(three), 12345, 12345}, {.is_whole = true}) == "");
  CHECK(three->outputs().size() == 2);
  // What another device finds later changes nothing.
  const std::byte* const at = three->outputs()[0].bytes.data();
  CHECK(d.run({3}) == "");
  three->end({}, "no");
  CHECK(three->outputs()[0].bytes.data() == at);
  CHECK(three->error().empty());
  CHECK(d.run({open_runs::sample_number}) == "");
  CHECK(d.run({12345}, {.is_sample = true}) == "");
  runs->leave(second);
  CHECK(runs->find(second) == nullptr);
  CHECK(test::gist(d.run({second})) == "failed: ... request ... not there");
  runs->leave(second);
}

TEST_CASE("a request that cannot be computed is to blame for that itself, and says why") {
  const auto runs = std::make_shared<open_runs>(load_open(test::pooled()));
  device d{runs};
  const auto good = request({image(1, 2, 2)});
  const auto bad = request({image(1, 1, 1)});
  const std::uint64_t a = runs->enter(good);
  const std::uint64_t b = runs->enter(bad);
  std::vector<std::uint8_t> unfit(2);
  CHECK(d.run({a, b}, {.unfit = unfit.data()}) == "");
  CHECK(unfit == std::vector<std::uint8_t>{slot_state::fit, slot_state::unfit});
  CHECK(good->outputs().size() == 2);
  CHECK(bad->error().find("pooled") != std::string::npos);
  unfit = {0, 0};
  CHECK(d.run({b, b}, {.unfit = unfit.data(), .is_whole = true}) == "");
  CHECK(unfit == std::vector<std::uint8_t>{slot_state::unfit, slot_state::unfit});
  CHECK(d.run({b}).starts_with("failed: model 'pooled': "));  // Nobody asks whose fault it is.
  const std::atomic<bool> given_up{true};
  unfit = {0, 0};
  CHECK(test::gist(d.run({b}, {.unfit = unfit.data(), .given_up = &given_up})) ==
        "failed: ... given up");
  CHECK(unfit[0] == slot_state::fit);
}

/// Strings as a tensor has them.
shaped_tensor strings(shape s, const std::vector<std::string>& all) {
  std::vector<char> bytes;
  for (const std::string& one : all) {
    for (unsigned shift = 0; shift < 32; shift += 8) {
      bytes.push_back(static_cast<char>(one.size() >> shift & 0xFFU));
    }
    bytes.insert(bytes.end(), one.begin(), one.end());
  }
  return tensor(std::move(s), bytes);
}
std::vector<std::string> texts_of(const shaped_tensor& t) {
  std::vector<std::string> all;
  std::span<const std::byte> rest = t.bytes;
  while (const auto one = take_string(rest)) all.emplace_back(*one);
  CHECK(rest.empty());
  return all;
}
using texts = std::vector<std::string>;

/// What a row lacks to the sum of all rows that it runs with, and, if asked for, that sum.
formats::onnx_model company(bool tells_sum = false) {
  onnx_builder b{"company"};
  const onnx_builder::declared shape{{.name = "n"}, {.name = "high"}, {.name = "wide"}};
  const std::string x = b.input("x", data_type::f32, shape);
  const std::string sum =
      b.node("ReduceSum", {x, b.integers({1}, {0})}, {{"keepdims", std::int64_t{1}}}, "sum");
  b.node("Sub", {sum, x}, {}, "others");
  b.output("others", data_type::f32, shape);
  if (tells_sum) b.output("sum", data_type::f32, {{}, {.name = "high"}, {.name = "wide"}});
  return b.done();
}
shaped_tensor row(const std::vector<float>& values, std::int64_t rows = 1, std::int64_t high = 1) {
  return tensor({rows, high, static_cast<std::int64_t>(values.size()) / rows / high}, values);
}

TEST_CASE("requests whose inputs are alike run together, in so many rows") {
  const auto runs = std::make_shared<open_runs>(load_open(company()), 4);
  device d{runs};
  std::vector<std::shared_ptr<open_run>> all;
  std::vector<std::uint64_t> numbers;
  for (shaped_tensor t : {row({1, 2}), row({5}), row({10, 20}), row({3, 4, 5, 6}, 2), row({7}),
                          row({100, 200}), row({1, 2}, 1, 2)}) {
    all.push_back(request({std::move(t)}));
    numbers.push_back(runs->enter(all.back()));
  }
  numbers.insert(numbers.begin() + 2, {12345, open_runs::sample_number});  // Others in the slice.
  CHECK(d.run(numbers) == "");
  const auto answer = [&](std::size_t i) {
    REQUIRE(all[i]->outputs().size() == 1);
    CHECK(all[i]->outputs()[0].shape == all[i]->inputs()[0].shape);
    return values_of<float>(all[i]->outputs()[0].bytes);
  };
  using floats = std::vector<float>;
  // The first, third and fourth are four rows; there is no place for the sixth.
  CHECK(answer(0) == floats{18, 30});
  CHECK(answer(2) == floats{9, 12});
  CHECK(answer(3) == floats{16, 28, 14, 26});
  CHECK(answer(5) == floats{0, 0});
  CHECK(answer(1) == floats{7});
  CHECK(answer(4) == floats{5});
  CHECK(answer(6) == floats{0, 0});  // As many numbers, but another shape.
  // Nobody runs with others where that was not asked for.
  const auto alone = std::make_shared<open_runs>(load_open(company()));
  device other{alone};
  const auto a = request({row({1, 2})});
  const auto b = request({row({10, 20})});
  CHECK(other.run({alone->enter(a), alone->enter(b)}) == "");
  CHECK(values_of<float>(a->outputs()[0].bytes) == floats{0, 0});
}

TEST_CASE("where outputs have no rows each request runs alone from then on") {
  const auto runs = std::make_shared<open_runs>(load_open(company(true)), 8);
  device d{runs};
  const auto a = request({row({1, 2})});
  const auto b = request({row({10, 20})});
  CHECK(d.run({runs->enter(a), runs->enter(b)}) == "");
  CHECK(values_of<float>(a->outputs()[1].bytes) == std::vector<float>{1, 2});
  CHECK(values_of<float>(b->outputs()[1].bytes) == std::vector<float>{10, 20});
  CHECK(values_of<float>(b->outputs()[0].bytes) == std::vector<float>{0, 0});
  CHECK(runs->most_rows() == 0);
}

TEST_CASE("of requests that ran together only those that cannot be computed are to blame") {
  const auto runs = std::make_shared<open_runs>(load_open(test::spelt_numbers()), 8);
  device d{runs};
  const auto good = request({strings({2}, {"1.5", "-2"})});
  const auto bad = request({strings({1}, {"one"})});
  const auto other = request({strings({1}, {"4"})});
  std::vector<std::uint8_t> unfit(3);
  CHECK(d.run({runs->enter(other)}) == "");  // A sample.
  CHECK(d.run({runs->enter(good), runs->enter(bad), runs->enter(other)}, {.unfit = unfit.data()}) ==
        "");
  CHECK(unfit == std::vector<std::uint8_t>{slot_state::fit, slot_state::unfit, slot_state::fit});
  CHECK(values_of<float>(good->outputs()[0].bytes) == std::vector<float>{1.5F, -2});
  CHECK(runs->most_rows() == 8);
}

TEST_CASE("a tensor is cut into the rows that it was joined from, strings too") {
  const shaped_tensor a = strings({2, 2}, {"a", "", "bcd", "e"});
  const shaped_tensor b = strings({1, 2}, {"", "fg"});
  const shaped_tensor* const both[] = {&a, &b};
  const shaped_tensor all = joined(both);
  CHECK(all.shape == shape{3, 2});
  CHECK(texts_of(all) == texts{"a", "", "bcd", "e", "", "fg"});
  const std::int64_t rows[] = {2, 1};
  const auto parts = cut(all, data_type::bytes, rows);
  REQUIRE(parts.size() == 2);
  CHECK(parts[0].shape == a.shape);
  CHECK(texts_of(parts[0]) == texts_of(a));
  CHECK(texts_of(parts[1]) == texts_of(b));
  const std::int64_t others[] = {2, 2};
  CHECK(cut(all, data_type::bytes, others).empty());
  CHECK(cut(strings({}, {"x"}), data_type::bytes, rows).empty());
  const auto numbers = cut(tensor<float>({3, 0}, {}), data_type::f32, rows);
  CHECK(numbers[1].shape == shape{1, 0});
}

TEST_CASE("where no zeros can be computed the first request that can is the sample") {
  const auto s = load_open(test::from_minus_ten());
  REQUIRE(s->is_open());
  CHECK(s->sample_shapes().empty());
  const auto runs = std::make_shared<open_runs>(s);
  CHECK(runs->sample() == nullptr);
  CHECK(runs->sample_weight() == 0);
  device d{runs};
  CHECK(d.run({open_runs::sample_number}) == "");  // There is nothing to run.
  const auto bad = request({tensor<std::int64_t>({1, 1, 1}, {0})});
  std::uint8_t unfit = 0;
  CHECK(d.run({runs->enter(bad)}, {.unfit = &unfit}) == "");
  CHECK(unfit == slot_state::unfit);
  CHECK(runs->sample() == nullptr);
  const auto good = request({tensor<std::int64_t>({1, 3, 1}, {-10, -7, -9})});
  CHECK(d.run({runs->enter(good)}) == "");
  CHECK(values_of<float>(good->outputs()[0].bytes) == std::vector<float>{1.5, 4.5, 2.5});
  CHECK(runs->sample_weight() == 24);
  CHECK(d.run({runs->enter(request({tensor<std::int64_t>({1, 1, 1}, {-8})}))}) == "");
  CHECK(runs->sample_weight() == 24);  // One is enough.
  CHECK(d.run({open_runs::sample_number}) == "");
}

TEST_CASE("a model with strings is open, and they go in and out as they are") {
  CHECK(test::gist_of<config_error>([] { static_cast<void>(load(test::strings())); }) ==
        "model 'strings': input 'text' ... BYTES (strings)");
  const auto s = load_open(test::strings());
  CHECK(test::gist(s->why_open()) == "input 'text' ... BYTES (strings)");
  CHECK(s->interface().inputs[0].type == data_type::bytes);
  CHECK(s->interface().inputs[0].shape == shape{-1, -1});
  CHECK(s->sample_shapes() == std::vector<shape>{{1, 64}, {}});
  const texts all{"a", "", std::string{"\0n\0", 3}, "\xff\xfe", std::string(100'000, 'x'), "\n"};
  const auto out = run(*s, {strings({3, 2}, all), strings({}, {"."})});
  REQUIRE(out.size() == 3);
  CHECK(out[0].shape == shape{3, 2});
  CHECK(texts_of(out[0]) == texts{"a.", ".", std::string{"\0n\0.", 4}, "\xff\xfe.",
                                  std::string(100'000, 'x') + ".", "\n."});
  CHECK(out[1].shape == shape{3, 2});
  CHECK(texts_of(out[1]) == all);
  CHECK(texts_of(out[2]) == texts{"7", "8"});
  const std::string large(std::size_t{16} << 20U, 'y');
  CHECK(texts_of(run(*s, {strings({1, 1}, {large}), strings({}, {""})})[0]) == texts{large});
}

TEST_CASE("strings that are more or fewer than their shape, or not whole, are refused") {
  const auto s = load_open(test::strings());
  const auto refused = [&](shaped_tensor text) {
    return test::gist_of<device_error>(
        [&] { static_cast<void>(run(*s, {std::move(text), strings({}, {""})})); });
  };
  const std::string why = "model 'strings': input 'text': ... strings ... shape ... ";
  CHECK(refused(strings({1, 2}, {"a", "b"})) == "no error");
  CHECK(refused(strings({1, 2}, {"a"})) == why + "[1,2]");
  CHECK(refused(strings({1, 1}, {"a", "b"})) == why + "[1,1]");
  CHECK(refused(tensor<char>({1, 1}, {2, 0, 0, 0, 'a'})) == why + "[1,1]");
  CHECK(refused(tensor<char>({1, 1}, {-1, -1, -1, -1, 'a'})) == why + "[1,1]");
  CHECK(refused(tensor<char>({1, 1}, {0, 0, 0})) == why + "[1,1]");
  CHECK(refused(tensor<char>({1, 1}, {})) == why + "[1,1]");
  const std::int64_t most = std::int64_t{1} << 40U;
  CHECK(refused(strings({most, most}, {"a"})) == why + "[1099511627776,1099511627776]");
}

TEST_CASE("a sample has empty strings, and requests weigh by their strings and their bytes") {
  const auto runs = std::make_shared<open_runs>(load_open(test::strings()));
  CHECK(runs->sample_weight() == 65 * (1024 + 4));
  CHECK(texts_of(runs->sample()->inputs()[1]) == texts{""});
  device d{runs};
  CHECK(d.run({open_runs::sample_number}) == "");
  const auto one = request({strings({1, 1}, {"abc"}), strings({}, {""})});
  CHECK(runs->weight(*one) == 2 * (1024 + 4) + 3);
  CHECK(d.run({runs->enter(one)}) == "");
  CHECK(texts_of(one->outputs()[0]) == texts{"abc"});
  // What is spelt in an empty string is no number: a request has to show what can be computed.
  const auto numbers = std::make_shared<open_runs>(load_open(test::spelt_numbers()));
  CHECK(numbers->sample() == nullptr);
  device n{numbers};
  const auto bad = request({strings({1}, {"one"})});
  std::uint8_t unfit = 0;
  CHECK(n.run({numbers->enter(bad)}, {.unfit = &unfit}) == "");
  CHECK(unfit == slot_state::unfit);
  const auto good = request({strings({2}, {"1.5", "-2"})});
  CHECK(n.run({numbers->enter(good)}) == "");
  CHECK(values_of<float>(good->outputs()[0].bytes) == std::vector<float>{1.5F, -2});
  CHECK(numbers->sample() != nullptr);
}

TEST_CASE("of a model with strings that nobody asks for the others have rows") {
  onnx_builder b{"two"};
  const std::string x = b.input("x", data_type::i64, {{}, {.value = 2}});
  b.node("Cast", {x}, {{"to", std::int64_t{8}}}, "text");
  b.node("Neg", {x}, {}, "y");
  b.output("text", data_type::bytes, {{}, {.value = 2}});
  b.output("y", data_type::i64, {{}, {.value = 2}});
  CHECK(test::gist(load_open(b.done())->why_open()) == "output 'text' ... BYTES (strings)");
  const auto s = load_open(b.done(), {.outputs = {"y"}});
  CHECK_FALSE(s->is_open());
  CHECK(s->has_batch());
  // So it is with what is no tensor at all.
  b.node("SequenceConstruct", {x}, {}, "list");
  b.model().outputs.push_back({.name = "list", .rest = "\x12\x08\"\x06\n\x04\n\x02\x08\x07"});
  CHECK(test::gist_of<config_error>([&] { static_cast<void>(load_open(b.done())); }) ==
        "model 'two': output 'list' ... sequence");
  CHECK(load_open(b.done(), {.outputs = {"y"}})->has_batch());
}

}  // namespace
}  // namespace cohort::runtime::onnx::open_model_test
