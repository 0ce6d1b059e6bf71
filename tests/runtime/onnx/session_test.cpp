// SPDX-License-Identifier: Apache-2.0
#include <cohort/runtime/onnx/session.hpp>

#include <doctest/doctest.h>
#include <cohort/core/error.hpp>
#include <support/scratch_file.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <support/complaint.hpp>
#include <thread>
#include <vector>

#include "onnx_fixture.hpp"

namespace cohort::runtime::onnx::session_test {
namespace {
using formats::onnx_dimension;
using test::onnx_builder;

const onnx_dimension batch{.value = -1, .name = "batch"};
onnx_dimension of(std::int64_t n) { return {.value = n, .name = {}}; }

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
template <class F>
test::gist refusal(F f) {
  const test::gist text = test::gist_of<config_error>(f);
  CHECK_FALSE(has(text, "\n"));
  return text;
}
test::gist refusal(const formats::onnx_model& m, const session_options& o = {}) {
  return refusal([&] { static_cast<void>(load(m, o)); });
}

/// A model in a folder of its own, which goes with it.
struct model_file {
  explicit model_file(const std::string& content)
      : folder{test::scratch("onnx")}, path{folder / "net.onnx"} {
    std::filesystem::create_directories(folder);
    test::spill(path.string(), content);
  }
  ~model_file() { std::filesystem::remove_all(folder); }
  model_file(const model_file&) = delete;
  model_file& operator=(const model_file&) = delete;
  [[nodiscard]] test::gist refused(const session_options& o = {}) const {
    return refusal([&] { const session s(runtime(), path, o); });
  }

  std::filesystem::path folder;
  std::filesystem::path path;
};

/// The MLP with its first weights in a file.
formats::onnx_model with_external(const std::string& location, std::string& weights) {
  return test::with_external(test::mlp(), location, weights);
}

/// `plus(2)`, whose weights lie beside it, in w.bin.
struct summing_file {
  explicit summing_file(const std::string& location = "w.bin")
      : file{formats::to_bytes(test::with_external(test::plus(2), location, weights))} {
    std::string other;
    static_cast<void>(test::with_external(test::plus(5), location, other));
    test::spill(at(), weights);
    others = other;
  }
  [[nodiscard]] std::string at(const std::string& name = "w.bin") const {
    return (file.folder / name).string();
  }
  std::string weights;  // Of `plus(2)`,
  std::string others;   // and of `plus(5)`.
  model_file file;
};
/// The first and the last of what it makes of 1.
std::vector<float> ends_of(const session& s) {
  const auto y = answers(s, {bytes_of(std::vector<float>{1})}, 1);
  const auto values = values_of<float>(y.at(0));
  return {values.front(), values.back()};
}

TEST_CASE("a session tells its model's tensors without the batch") {
  const auto s = load(test::mlp());
  CHECK(s->has_batch());
  CHECK_FALSE(s->pads());
  const model_interface& m = s->interface();
  CHECK(m.name == "mlp");
  CHECK(m.max_size == 1);
  CHECK(m.inputs == std::vector<tensor_info>{{.name = "x", .type = data_type::f32, .shape = {32}}});
  CHECK(m.outputs ==
        std::vector<tensor_info>{{.name = "y", .type = data_type::f32, .shape = {10}}});
}

TEST_CASE("a session tells sizes, a mask, several tensors and their types") {
  const auto s = load(test::masked_encoder(), {.max_size = 100});
  CHECK(s->pads());
  CHECK(s->interface().max_size == 100);
  CHECK(s->interface().inputs ==
        std::vector<tensor_info>{
            {.name = "input_ids", .type = data_type::i64, .shape = {size_dimension}},
            {.name = "attention_mask", .type = data_type::i64, .shape = {size_dimension}}});
  CHECK(s->interface().outputs ==
        std::vector<tensor_info>{
            {.name = "tokens", .type = data_type::f32, .shape = {size_dimension, 8}},
            {.name = "pooled", .type = data_type::f32, .shape = {4}}});
  CHECK(load(test::two_by_two())->interface().outputs[1].type == data_type::boolean);
}

TEST_CASE("a session computes the outputs that are asked for, and no others") {
  const auto s = load(test::two_by_two(), {.outputs = {"positive"}});
  REQUIRE(s->interface().outputs.size() == 1);
  CHECK(s->interface().outputs[0].name == "positive");
  const auto y = answers(
      *s,
      {bytes_of(std::vector<float>{1, 2, 3}), bytes_of(std::vector<std::int32_t>{-1, 1, 0, 7, -5})},
      1);
  REQUIRE(y.size() == 1);
  CHECK(values_of<std::uint8_t>(y[0]) == std::vector<std::uint8_t>{0, 1, 0, 1, 0});
  CHECK(refusal(test::two_by_two(), {.outputs = {"sum", "product"}}) == "... no output 'product'");
}

TEST_CASE("every plain type of elements goes in and out") {
  for (std::size_t i = 0; i < data_types; ++i) {
    const auto type = static_cast<data_type>(i);
    CAPTURE(name_of(type));
    onnx_builder b{"identity"};
    b.node("Identity", {b.input("x", type, {batch, of(4)})}, {}, "y");
    b.output("y", type, {batch, of(4)});
    const auto s = load(b.done());
    CHECK(s->interface().inputs[0].type == type);
    CHECK(s->interface().outputs[0].type == type);
    std::vector<std::byte> x;
    for (std::size_t k = 0; k < 8 * runtime::bytes_of(type); ++k) x.push_back(std::byte(k % 2));
    CHECK(answers(*s, {x}, 2)[0] == x);
  }
}

/// One over the number of rows that ran with it, in each row, if all inputs are equal.
formats::onnx_model share_of_rows() {
  onnx_builder b{"share"};
  b.node("Softmax", {b.input("x", data_type::f32, {batch, of(1)})}, {{.name = "axis", .value = 0}},
         "y");
  b.output("y", data_type::f32, {batch, of(1)});
  return b.done();
}

TEST_CASE("a session of some batch sizes runs no others, and fills up with the last row") {
  const auto s = load(share_of_rows(), {.batch_sizes = {2, 5}});
  const auto share = [&](const std::vector<float>& x) {
    return values_of<float>(answers(*s, {bytes_of(x)}, static_cast<std::uint32_t>(x.size()))[0]);
  };
  CHECK(share({7}) == std::vector<float>{0.5F});
  CHECK(share({7, 7}) == std::vector<float>(2, 0.5F));
  CHECK(share({7, 7, 7}) == std::vector<float>(3, 0.2F));
  CHECK(share({7, 7, 7, 7, 7}) == std::vector<float>(5, 0.2F));
  // The last row is the one that is repeated: the first is e to the -100 beside it.
  CHECK(share({-100, 0})[1] == doctest::Approx(1));
  CHECK(share({-100, 0, 0})[1] == doctest::Approx(0.25));
  // Seven are five and two.
  CHECK(share(std::vector<float>(7, 7)) ==
        std::vector<float>{0.2F, 0.2F, 0.2F, 0.2F, 0.2F, 0.5F, 0.5F});
  CHECK(values_of<float>(answers(*load(share_of_rows()), {bytes_of(std::vector<float>(3, 7))},
                                 3)[0])[0] == doctest::Approx(1.0 / 3));
}

TEST_CASE("a session of some batch sizes answers as one of any") {
  const auto any = load(test::masked_encoder(), {.max_size = 8});
  const auto some = load(test::masked_encoder(), {.max_size = 8, .batch_sizes = {1, 4, 8}});
  for (std::uint32_t rows = 1; rows <= 19; ++rows) {
    CAPTURE(rows);
    std::vector<std::int64_t> ids;
    for (std::int64_t i = 0; i < 8 * std::int64_t{rows}; ++i) ids.push_back(1 + i * i % 63);
    const std::vector<std::vector<std::byte>> in{
        bytes_of(ids), bytes_of(std::vector<std::int64_t>(ids.size(), 1))};
    const auto a = answers(*any, in, rows, 8);
    const auto b = answers(*some, in, rows, 8);
    REQUIRE(a.size() == 2);
    for (std::size_t k = 0; k < 2; ++k) {
      const auto x = values_of<float>(a[k]);
      const auto y = values_of<float>(b[k]);
      REQUIRE(x.size() == y.size());
      for (std::size_t i = 0; i < x.size(); ++i) CHECK(y[i] == doctest::Approx(x[i]).epsilon(1e-4));
    }
  }
  const std::vector<std::byte> two = bytes_of(std::vector<float>(std::size_t{2} * 6 * 4, 1));
  CHECK(answers(*load(test::without_batch(), {.batch_sizes = {4}}), {two}, 2) ==
        answers(*load(test::without_batch()), {two}, 2));
}

TEST_CASE("a softmax of three rows sums to 1 in each") {
  const auto s = load(test::mlp());
  const auto y = values_of<float>(answers(*s, {bytes_of(std::vector<float>(3 * 32, 0.5F))}, 3)[0]);
  REQUIRE(y.size() == 30);
  for (std::size_t r = 0; r < 3; ++r) {
    float sum = 0;
    for (std::size_t i = 0; i < 10; ++i) sum += y[r * 10 + i];
    CHECK(sum == doctest::Approx(1));
  }
}

TEST_CASE("shapes of outputs that are not declared are found by running") {
  onnx_builder b{"undeclared"};
  const std::string x = b.input("x", data_type::f32, {batch, {.value = -1, .name = "n"}, of(3)});
  b.node("Relu", {x}, {}, "same");
  b.node("ReduceSum", {x, b.integers({1}, {1})}, {{"keepdims", std::int64_t{0}}}, "sum");
  for (const char* name : {"same", "sum"})
    b.model().outputs.push_back({.name = name, .element = 1});
  const auto s = load(b.done());
  CHECK(s->interface().outputs[0].shape == std::vector<std::int64_t>{size_dimension, 3});
  CHECK(s->interface().outputs[1].shape == std::vector<std::int64_t>{3});

  onnx_builder twice{"twice"};
  const std::string in = twice.input("x", data_type::f32, {batch, {.value = -1, .name = "n"}});
  twice.node("Concat", {in, in}, {{"axis", std::int64_t{1}}}, "y");
  twice.output("y", data_type::f32, {batch, {.value = -1, .name = "m"}});
  CHECK(refusal(twice.done()) ==
        "model 'twice': output 'y', dimension 1 ... 12 ... size 6 ... 24 ... size 12: ... at least "
        "1");
}

TEST_CASE("a model that fails on zeros and does not declare its outputs says so") {
  onnx_builder b{"strict"};  // Looks up place −1000 of four.
  const std::string ids = b.input("ids", data_type::i64, {{.value = -1, .name = "n"}});
  const std::string place = b.node("Sub", {ids, b.integers({}, {1000})});
  b.node("NonZero", {b.node("Gather", {b.weights({4}, 1), place})}, {}, "y");
  b.output("y", data_type::i64, {of(1), {.value = -1, .name = "found"}});
  const test::gist text = refusal(b.done());
  CHECK(text ==
        "model 'strict': ... outputs ... not declared ... 1 rows of size 6 ... failed: ...");
  CHECK(has(text, "indices element out of data bounds, idx=-1000"));
}

TEST_CASE(
    "strings, sequences, maps, optionals and numbers of odd sizes are refused by name and type") {
  const std::string tensor = "\x0a\x02\x08\x01";  // A tensor of FP32, as a type.
  const auto message = [&](int id, const std::string& content) {
    const std::string type = static_cast<char>(id << 3 | 2) +
                             std::string(1, static_cast<char>(content.size())) + content;
    return std::string("\x12") + static_cast<char>(type.size()) + type;
  };
  const std::string element = std::string("\x0a\x04") + tensor;
  const auto given = [&](const std::string& rest) {
    onnx_builder b{"odd"};
    b.model().inputs.push_back({.name = "odd one", .rest = rest});
    b.node("Identity", {b.input("x", data_type::f32, {batch, of(2)})}, {}, "y");
    b.output("y", data_type::f32, {batch, of(2)});
    return refusal(b.done());
  };
  const std::string rest = ": ... tensor of numbers";
  CHECK(given(message(4, element)) == "model 'odd': input 'odd one' ... sequence" + rest);
  CHECK(given(message(5, std::string("\x08\x07\x12\x04", 4) + tensor)) ==
        "model 'odd': input 'odd one' ... map" + rest);
  CHECK(given(message(9, element)) == "model 'odd': input 'odd one' ... optional" + rest);

  onnx_builder out{"out"};
  out.node("SequenceConstruct", {out.input("x", data_type::f32, {batch, of(2)})}, {}, "s");
  out.model().outputs.push_back({.name = "s", .rest = message(4, element)});
  CHECK(refusal(out.done()) == "model 'out': output 's' ... sequence" + rest);

  const auto identity = [](std::int32_t type) {
    onnx_builder b{"types"};
    b.node("Identity", {b.input("x", data_type::f32, {batch, of(2)})}, {}, "y");
    b.output("y", data_type::f32, {batch, of(2)});
    b.model().inputs[0].element = b.model().outputs[0].element = type;
    b.model().opsets[0].version = 21;
    return refusal(b.done());
  };
  const std::string numbers = ": ... 8 to 64 bits ... booleans";
  CHECK(identity(8) == "model 'types': input 'x' ... BYTES (strings)" + numbers);
  CHECK(identity(17) == "model 'types': input 'x' ... float8e4m3fn" + numbers);
}

TEST_CASE("what ONNX Runtime does not take is refused in its words, in one line, with the file") {
  formats::onnx_model m = test::mlp();
  m.opsets[0].version = 999;
  CHECK(has(refusal(m), "model 'mlp': "));
  CHECK(has(refusal(m), "Opset 999"));
  m = test::mlp();
  m.nodes[0].op = "Nonsense";
  CHECK(has(refusal(m), "No Op registered for Nonsense"));
  m = test::mlp();
  m.nodes[0].inputs[0] = m.nodes.back().outputs[0];
  const model_file circle{formats::to_bytes(m)};
  CHECK(has(circle.refused(), circle.path.string() + ": "));
  CHECK(has(circle.refused(), "not acyclic"));
}

TEST_CASE("a file is named after, and refused when cut off, too large or not there") {
  const std::string whole = formats::to_bytes(test::mlp());
  {
    const model_file f{whole};
    const session s{runtime(), f.path};
    CHECK(s.interface().name == "net");
    CHECK(f.refused({.max_bytes = whole.size()}) == "no error");
    CHECK(f.refused({.max_bytes = whole.size() - 1}) ==
          f.path.string() + ": ... " + std::to_string(whole.size()) + " bytes ... at most " +
              std::to_string(whole.size() - 1));
  }
  for (const std::size_t n : {std::size_t{0}, std::size_t{1}, whole.size() / 2, whole.size() - 1}) {
    const model_file f{whole.substr(0, n)};
    CHECK(f.refused() == f.path.string() + ": ... cut off ... ONNX model: ...");
  }
  const auto refuse = [](const char* path) {
    return refusal([&] { const session s(runtime(), std::filesystem::path{path}); });
  };
  CHECK(refuse("no/such.onnx") == "no/such.onnx: ... No such file or directory");
  CHECK(refuse(".") == ".: ... not a regular file");
}

TEST_CASE("weights lie beside their model, and nowhere else") {
  std::string weights;
  const auto x = std::vector<std::vector<std::byte>>{bytes_of(std::vector<float>(32, 0.5F))};
  {
    const model_file f{formats::to_bytes(with_external("w.bin", weights))};
    CHECK(has(f.refused(), "w.bin"));  // Not there.
    test::spill((f.folder / "w.bin").string(), weights);
    const session s{runtime(), f.path};
    CHECK(answers(s, x, 1) == answers(*load(test::mlp()), x, 1));
  }
  for (const char* bad : {"../w.bin", "/etc/hostname", "a/../../w.bin"}) {
    const model_file f{formats::to_bytes(with_external(bad, weights))};
    CHECK(f.refused() ==
          f.path.string() + ": external data '" + bad + "' ... refused ... below ... folder");
  }
  CHECK(refusal(with_external("w.bin", weights)) == "model 'mlp': external data ... refused ...");
}

TEST_CASE("a session never sees what becomes of the file of its weights") {
  const summing_file f;
  const session s{runtime(), f.file.path};
  {
    std::fstream in_place{f.at(), std::ios::in | std::ios::out | std::ios::binary};
    in_place << f.others;
  }
  REQUIRE(test::slurp(f.at()) == f.others);
  CHECK(ends_of(s) == std::vector<float>{3, 3});
  const session next{runtime(), f.file.path};
  CHECK(ends_of(next) == std::vector<float>{6, 6});
  std::filesystem::remove(f.at());
  CHECK(ends_of(s) == std::vector<float>{3, 3});
}

TEST_CASE("loading weights leaves nothing in TMPDIR, whether it succeeds or not") {
  const summing_file f;
  const std::filesystem::path tmp = f.file.folder / "tmp";
  std::filesystem::create_directory(tmp);
  const char* const before = std::getenv("TMPDIR");
  const std::string kept = before == nullptr ? "" : before;
  setenv("TMPDIR", tmp.c_str(), 1);
  const session s{runtime(), f.file.path};
  CHECK(std::filesystem::is_empty(tmp));
  std::filesystem::resize_file(f.at(), 100);
  CHECK(has(f.file.refused(), f.file.path.string() + ": "));
  CHECK(std::filesystem::is_empty(tmp));
  setenv("TMPDIR", "no/such/folder", 1);
  CHECK(f.file.refused() == f.file.path.string() + ": TMPDIR ... No such file or directory");
  before == nullptr ? unsetenv("TMPDIR") : setenv("TMPDIR", kept.c_str(), 1);
  CHECK(ends_of(s) == std::vector<float>{3, 3});
}

TEST_CASE("weights that links lead to are read within the model's folder alone") {
  const summing_file f{"data/w.bin"};
  const std::string outside = test::scratch("outside");
  std::filesystem::create_directory(f.at("data"));
  const std::string link = f.at("data/w.bin");
  std::filesystem::create_symlink("../w.bin", link);
  CHECK(f.file.refused() == "no error");
  std::filesystem::remove(link);
  std::filesystem::create_hard_link(f.at(), link);
  CHECK(f.file.refused() == "no error");

  const std::string refused = f.file.path.string() + ": external data 'data/w.bin' ... refused: ";
  std::filesystem::rename(f.at(), outside);
  std::filesystem::remove(link);
  std::filesystem::create_symlink(std::filesystem::absolute(outside), link);
  CHECK(f.file.refused() == refused + "... link ... absolute ... out ... folder");
  std::filesystem::remove(outside);
  std::filesystem::remove(link);
  std::filesystem::remove(f.at("data"));
  const std::string elsewhere =
      test::scratch("elsewhere");  // Its name begins as the folder's does.
  std::filesystem::create_directory(elsewhere);
  test::spill(elsewhere + "/w.bin", f.weights);
  std::filesystem::create_directory_symlink(std::filesystem::absolute(elsewhere), f.at("data"));
  CHECK(f.file.refused() == refused + "... link ... absolute ... out ... folder");
  std::filesystem::remove_all(elsewhere);
  std::filesystem::remove(f.at("data"));

  std::filesystem::create_directory(f.at("data"));
  REQUIRE(mkfifo(link.c_str(), 0600) == 0);  // Opening it would wait for a writer.
  CHECK(f.file.refused() == refused + "... not a regular file");
  std::filesystem::remove(link);
  CHECK(f.file.refused() ==
        f.file.path.string() + ": external data 'data/w.bin' ... No such file or directory");
  test::spill(outside, f.weights);
  std::filesystem::create_hard_link(outside, link);
  CHECK(f.file.refused() == refused + "... hard links outside ... folder");
  std::filesystem::remove(outside);
  CHECK(f.file.refused() == "no error");
}

TEST_CASE("a model of a repository is opened below its folder, and its name is all that is told") {
  const summing_file f;
  const std::filesystem::path repository = test::scratch("repository");
  std::filesystem::create_directories(repository / "sum/1");
  std::filesystem::create_directories(repository / "sum/2");
  const session_options below{.below = repository};
  const auto refused = [&](const std::string& name) {
    return refusal([&] { const session s(runtime(), name, below); });
  };
  const auto put = [&](const std::string& from, const std::string& name) {
    std::filesystem::create_hard_link(f.file.folder / from, repository / name);
  };
  CHECK(refused("sum/1/net.onnx") == "sum/1/net.onnx: ... No such file or directory");
  put("net.onnx", "sum/1/net.onnx");
  const std::string outside = "... refused: ... hard links outside ... folder";
  CHECK(refused("sum/1/net.onnx") == "sum/1/net.onnx: " + outside);
  std::filesystem::remove(f.file.path);
  put("w.bin", "sum/1/w.bin");
  CHECK(refused("sum/1/net.onnx") == "sum/1/net.onnx: external data 'w.bin' " + outside);
  std::filesystem::remove(f.at());
  CHECK(refused("sum/1/net.onnx") == "no error");
  // Versions of a model may share a file.
  std::filesystem::create_hard_link(repository / "sum/1/w.bin", repository / "sum/2/w.bin");
  std::filesystem::create_symlink("../1/net.onnx", repository / "sum/2/net.onnx");
  CHECK(refused("sum/2/net.onnx") == "no error");
  std::filesystem::remove(repository / "sum/2/net.onnx");
  std::filesystem::create_symlink(std::filesystem::absolute(repository / "sum/1/net.onnx"),
                                  repository / "sum/2/net.onnx");
  CHECK(refused("sum/2/net.onnx") ==
        "sum/2/net.onnx: ... refused: ... link ... absolute ... out ... folder");
  test::spill((repository / "sum/1/w.bin").string(), "short");
  const std::string why = refused("sum/1/net.onnx");
  CAPTURE(why);
  CHECK(why.starts_with("sum/1/net.onnx: "));
  CHECK_FALSE(has(why, "/cohort-"));  // Where the private copy is.
  std::filesystem::remove_all(repository);
}

TEST_CASE("runs that a construction makes end when they are given up") {
  // The shape of its output is not declared: it is run, and without an end.
  formats::onnx_model m = test::endless();
  m.outputs[0].shape = {batch, onnx_dimension{.value = -1, .name = {}}};
  std::atomic<bool> given_up{false};
  run_end end{runtime()};
  std::thread later{[&] {
    given_up = true;
    end.ask();
  }};
  CHECK_THROWS((void)load(m, {.end = &end, .given_up = &given_up}));
  later.join();
}

TEST_CASE("options out of range and rows that do not fit are refused with the range") {
  CHECK(refusal(test::mlp(), {.threads = 0}) == "threads ... 0: ... 1 to 1024");
  CHECK(refusal(test::mlp(), {.max_size = 0}) == "max_size ... 0: ... 1 to 1048576");
  CHECK(refusal(test::mlp(), {.batch_sizes = {1, 4, 4}}) ==
        "batch_sizes ... 1, 4, 4: ... ascending ... 1");
  CHECK(refusal(test::mlp(), {.batch_sizes = {0, 4}}) ==
        "batch_sizes ... 0, 4: ... ascending ... 1");
  CHECK(refusal(test::without_batch(), {.has_batch = true}) ==
        "model 'without_batch': input 'x', dimension 0 ... not dynamic: ... batch");
  const auto s = load(test::encoder(), {.max_size = 4});
  const auto asked = [&](std::size_t inputs, std::size_t outputs, std::uint32_t rows,
                         std::uint32_t size) {
    const std::vector<const std::byte*> in(inputs);
    const std::vector<std::byte*> out(outputs);
    return refusal([&] { s->run(in, out, rows, size); });
  };
  CHECK(asked(2, 1, 1, 1) == "model 'encoder': ... inputs ... 2: ... 1");
  CHECK(asked(1, 0, 1, 1) == "model 'encoder': ... outputs ... 0: ... 1");
  CHECK(asked(1, 1, 0, 1) == "model 'encoder': rows ... 0: ... at least 1");
  CHECK(asked(1, 1, 1, 0) == "model 'encoder': size ... 0: ... 1 to 4");
  CHECK(asked(1, 1, 1, 5) == "model 'encoder': size ... 5: ... 1 to 4");
}

TEST_CASE("a model that does not keep to the outputs it declares fails the run") {
  onnx_builder b{"lies"};
  b.node("Reshape", {b.input("x", data_type::f32, {batch, of(4)}), b.integers({2}, {-1, 2})}, {},
         "y");
  b.output("y", data_type::f32, {batch, of(2)});
  const auto s = load(b.done());
  CHECK_THROWS_AS(static_cast<void>(answers(*s, {bytes_of(std::vector<float>(8))}, 2)),
                  device_error);
}

TEST_CASE("one session answers several threads at once") {
  const auto s = load(test::encoder(), {.threads = 2, .max_size = 16});
  const auto input = [](std::int64_t k) {
    std::vector<std::int64_t> ids;
    for (std::int64_t i = 0; i < 16; ++i) ids.push_back(1 + (i * k) % 63);
    return std::vector<std::vector<std::byte>>{bytes_of(ids)};
  };
  std::vector<std::vector<std::vector<std::byte>>> alone;
  for (std::int64_t k = 1; k <= 4; ++k) alone.push_back(answers(*s, input(k), 1, 16));
  std::vector<int> wrong(4);
  std::vector<std::thread> threads;
  for (std::size_t k = 0; k < 4; ++k) {
    threads.emplace_back([&, k] {
      for (int i = 0; i < 50; ++i) {
        wrong[k] += answers(*s, input(static_cast<std::int64_t>(k) + 1), 1, 16) == alone[k] ? 0 : 1;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  CHECK(wrong == std::vector<int>(4));
}

TEST_CASE("where ONNX Runtime has no GPU a session on one is refused, and says what is missing") {
  const std::string why = runtime()->why_no_cuda(0);
  if (why.empty()) {
    CHECK(refusal(test::two_by_two(), {.cuda_device = 0}) == "no error");
    CHECK(has(runtime()->why_no_cuda(1000), "1000"));
    return;
  }
  CHECK(has(why, "ONNX Runtime " + runtime()->version() + " (" + runtime()->path() + "): "));
  CHECK_FALSE(has(why, "\n"));
  const std::string refused = refusal(test::two_by_two(), {.cuda_device = 0});
  CHECK(refused.starts_with("model '"));
  CHECK(why.ends_with(refused.substr(refused.find("': ") + 3)));
}

}  // namespace
}  // namespace cohort::runtime::onnx::session_test
