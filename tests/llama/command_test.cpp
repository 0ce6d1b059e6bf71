// SPDX-License-Identifier: Apache-2.0
// The command cohort-llm as a user sees it.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <commands/run_command.hpp>
#include <nlohmann/json.hpp>
#include <support/complaint.hpp>

namespace cohort::llama::command_test {
namespace {
using test::command_result;
using test::slurp;
using test::spill;

command_result run(const std::string& arguments) { return test::cohort_command(arguments); }

/// A folder of this process that goes with it.
struct folder {
  explicit folder(const std::string& name) : path{test::scratch(name)} {
    std::filesystem::remove_all(path);
  }
  ~folder() { std::filesystem::remove_all(path); }
  folder(const folder&) = delete;
  folder& operator=(const folder&) = delete;
  [[nodiscard]] std::string operator/(const char* name) const { return path + "/" + name; }
  std::string path;
};

TEST_CASE("a model that was made says the same as the random one that it was made from") {
  const command_result direct = run("generate --weights-seed 5 Hello 'Once upon' --max-tokens 20");
  CHECK(direct.status == 0);
  CHECK(direct.err.empty());
  CHECK(direct.out.starts_with("[0] 20 tokens, length\n"));
  CHECK(direct.out.find("\n[1] 20 tokens, length\n") != std::string::npos);
  const std::pair<const char*, std::size_t> shards[] = {{"1", 1}, {"3", 3}};
  for (const auto& [option, count] : shards) {
    const folder model{"model"};
    CHECK(run("make-model " + model.path + " --seed 5 --shards " + option).status == 0);
    const auto files =
        std::ranges::count_if(std::filesystem::directory_iterator{model.path},
                              [](const auto& f) { return f.path().extension() == ".safetensors"; });
    CHECK(static_cast<std::size_t>(files) == count);
    CHECK(run("generate --model " + model.path + " Hello 'Once upon' --max-tokens 20").out ==
          direct.out);
  }
  CHECK(run("generate --weights-seed 6 Hello 'Once upon' --max-tokens 20").out != direct.out);
}

TEST_CASE("a text depends on its seed and prompt, not on its neighbours; a stop string ends it") {
  const std::string how = "--temperature 1 --top-k 40 --top-p 0.9 --seed 3 --max-tokens 30";
  const std::string alone = run("generate Hello " + how).out;
  const std::string among = run("generate Hello a 'b b' c --slots 2 " + how).out;
  CHECK(among.starts_with(alone));
  // Its first printable character, as a stop string: nothing of the text is left but what precedes.
  const std::string text = alone.substr(alone.find('\n') + 1);
  const auto at =
      std::ranges::find_if(text, [](char c) { return (c >= 'a' && c <= 'z') || c == '.'; });
  REQUIRE(at != text.end());
  const command_result stopped =
      run("generate --stop " + std::string(1, *at) + " --stop never Hello " + how);
  CHECK(stopped.status == 0);
  CHECK(stopped.out.find(" tokens, stop\n") != std::string::npos);
  CHECK(stopped.out.substr(stopped.out.find('\n') + 1) == std::string(text.begin(), at) + "\n");
}

TEST_CASE("compare runs every method, and all produce the same tokens") {
  for (const char* model : {"--random tiny", "--weights-seed 9"}) {
    const command_result r = run(std::string{"compare --scale 0.001 --slots 3 "} + model);
    CAPTURE(r.out);
    CHECK(r.status == 0);
    for (const char* method :
         {"run-to-completion ", "pd ", "shaping ", "orca ", "baton, one thread ", "baton "}) {
      CAPTURE(method);
      CHECK(r.out.find(std::string{"\n"} + method) != std::string::npos);
    }
    CHECK(r.out.find("DIFFERENT") == std::string::npos);
    CHECK(std::ranges::count(r.out, '\n') == 3 + 6);
  }
  const command_result late = run("compare --scale 0.001 --set 2 --rate 1000 --chunk 1");
  CHECK(late.status == 0);
  CHECK(late.out.starts_with("30 requests, "));
  CHECK(late.out.find("DIFFERENT") == std::string::npos);
}

#ifdef COHORT_HAS_SENTENCEPIECE
TEST_CASE("a model with a SentencePiece tokenizer is made, read and used") {
  const folder model{"pieces"};
  CHECK(run("make-model " + model.path + " --tokenizer pieces").status == 0);
  CHECK(std::filesystem::exists(model / "tokenizer.model"));
  CHECK_FALSE(std::filesystem::exists(model / "tokenizer.json"));
  const auto config = nlohmann::json::parse(slurp(model / "config.json"));
  CHECK(config["bos_token_id"] == 1);
  CHECK(config["eos_token_id"] == nlohmann::json::array({2}));
  const command_result r = run("generate --model " + model.path + " 'the sea' --max-tokens 8");
  CHECK(r.status == 0);
  CHECK(r.out.starts_with("[0] "));
  spill(model / "tokenizer.model", slurp(model / "tokenizer.model").substr(0, 1000));
  const command_result bad = run("generate --model " + model.path + " x");
  CHECK(bad.status == 2);
  CHECK(std::ranges::count(bad.err, '\n') == 1);
  CHECK(test::gist{bad.err}.has_line("... /tokenizer.model: ... SentencePiece model"));
}
#endif

TEST_CASE("bad inputs end the command with status 2 and one line") {
  const folder model{"bad"};
  REQUIRE(run("make-model " + model.path).status == 0);
  const auto expect = [](const std::string& arguments, const std::string& message) {
    const command_result r = run(arguments);
    CAPTURE(arguments);
    CAPTURE(r.err);
    CHECK(r.status == 2);
    CHECK(r.out.empty());
    CHECK(std::ranges::count(r.err, '\n') == 1);
    CHECK(test::gist{r.err} == "cohort-llm: ... " + message + " ...\n");
  };
  expect("dance", "\"dance\" ... not a subcommand ... generate, make-model or compare");
  expect("generate", "prompt: missing ... text");
  expect("generate x --bogus",
         "\"--bogus\": unknown option or argument: cohort-llm generate --help");
  expect("generate x --seed -1", "--seed: ... -1 ... from 0 to");
  expect("generate x --max-tokens 0", "--max-tokens");
  expect("generate x --slots none", "--slots");
  expect("generate x --temperature nan", "--temperature");
  expect("generate x --temperature -1", "--temperature: ... -1 ... 0 to 100");
  expect("generate x --top-p 0", "top_p");
  expect("generate x --top-p 3", "--top-p: ... 3 ... 0 to 1");
  expect("generate x --random huge", "huge");
  expect("generate x --executor tpu", "--executor: ... \"tpu\" ... host, cuda or auto");
  expect("generate x --dtype int8", "--dtype");
  expect("generate x --model /nonexistent", "/nonexistent/config.json: ... not a file");
  expect("generate x \"$(printf 'y%.0s' $(seq 2100))\" --max-tokens 1", "prompt 2: ");
  expect("compare --scale 0", "--scale");
  expect("compare --scale nan", "--scale");
  expect("compare --rate -1", "--rate");
  expect("compare --rate nan", "--rate");
  expect("compare --set 3", "--set");
  expect("make-model", "directory");
  expect("make-model " + (model / "config.json"), "config.json");
  expect("make-model /proc/nothing", "/proc/nothing: cannot be written ... No such file");
  expect("make-model " + test::scratch("none") + " --size huge", "huge");
  CHECK_FALSE(std::filesystem::exists(test::scratch("none")));
  expect("make-model x --shards 0", "--shards");
  expect("make-model x --tokenizer words", "--tokenizer");

  // A directory that is damaged, one file after another.
  const auto with = [&](const char* name, const std::string& text, const std::string& message) {
    const std::string path = model / name;
    const std::string good = slurp(path);
    spill(path, text);
    expect("generate x --model " + model.path, message);
    if (std::string{name} != "tokenizer.json") {  // Which comparing does not read.
      expect("compare --scale 0.001 --model " + model.path, message);
    }
    spill(path, good);
  };
  with("config.json", "{", "config.json: ... JSON object");
  with("config.json", "{}", "config.json: num_hidden_layers");
  with("config.json",
       R"({"num_hidden_layers":1000,"hidden_size":1048576,"num_attention_heads":4096,)"
       R"("intermediate_size":1048576,"vocab_size":16777216,"max_position_embeddings":9})",
       "parameters ... not fit");
  with("model.safetensors", slurp(model / "model.safetensors").substr(0, 5000),
       "model.safetensors: tensor ");
  with("model.safetensors", "", "model.safetensors: not a safetensors file");
  with("tokenizer.json", "{}", "tokenizer.json: model.type: ... BPE");
}

TEST_CASE("help names the subcommands") {
  CHECK(run("--version").out == "cohort-llm 0.1.0\n");
  const command_result none = run("");
  CHECK(none.status == 2);
  CHECK(none.err.find("Usage: cohort-llm") != std::string::npos);
  const command_result r = run("--help");
  CHECK(r.status == 0);
  for (const char* sub : {"generate", "make-model", "compare"}) {
    CHECK(r.out.find(sub) != std::string::npos);
    CHECK(run(std::string{sub} + " --help").status == 0);
  }
}

}  // namespace
}  // namespace cohort::llama::command_test
