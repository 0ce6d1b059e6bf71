// SPDX-License-Identifier: Apache-2.0
#include <llama/weights.hpp>

#include <cohort/core/error.hpp>

#include <doctest/doctest.h>

#include <unistd.h>
#include <nlohmann/json.hpp>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include <llama/safetensors.hpp>
#include <support/complaint.hpp>
#include <support/random_source.hpp>

namespace cohort::llama::weights_test {
namespace {
using nlohmann::json;

/// A folder that goes with the test.
struct folder {
  folder() : path{"scratch.llm." + std::to_string(getpid())} {
    std::filesystem::remove_all(path);
    std::filesystem::create_directory(path);
  }
  ~folder() { std::filesystem::remove_all(path); }
  std::string path;
};

std::string safetensors(const std::string& header, std::size_t data) {
  const std::uint64_t size = header.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &size, 8);
  return out + header + std::string(data, '\0');
}

std::span<const std::byte> bytes(const std::string& s) {
  return std::as_bytes(std::span{s.data(), s.size()});
}

TEST_CASE("a model is read back as it was written, whole or in shards") {
  const folder f;
  for (const std::size_t shards : {1U, 3U}) {
    llama_config c = named_config("tiny");
    c.tied = shards == 3;
    c.stretch = {.type = rope_type::llama3, .factor = 8, .original_positions = 1024};
    const llama_weights w = random_weights(c, 5);
    save_weights(w, f.path, shards);
    const llama_weights r = load_weights(f.path);
    CHECK(r.config.layers == c.layers);
    CHECK(r.config.tied == c.tied);
    CHECK(r.config.end_tokens == c.end_tokens);
    CHECK(r.config.stretch.factor == 8);
    CHECK(r.embedding == w.embedding);
    CHECK(r.head == w.head);
    CHECK(r.layers[1].qkv == w.layers[1].qkv);
    CHECK(r.layers[0].gate_up == w.layers[0].gate_up);
    CHECK(r.layers[1].down == w.layers[1].down);
    std::filesystem::remove(f.path + "/model.safetensors");
  }
}

TEST_CASE("half precision is widened exactly") {
  const std::string header =
      R"({"h":{"dtype":"F16","shape":[5],"data_offsets":[0,10]},"b":{"dtype":"BF16","shape":[1,2],"data_offsets":[10,14]},"i":{"dtype":"I8","shape":[1],"data_offsets":[14,15]}})";
  std::string file = safetensors(header, 15);
  const std::uint16_t values[] = {0x3C00, 0xC000, 0x0001, 0x7BFF, 0x8000, 0x3F80, 0xC0A0};
  std::memcpy(file.data() + file.size() - 15, values, 14);
  const auto t = read_safetensors(bytes(file), "f");
  CHECK(t.size() == 3);
  CHECK(t.at("i").type == tensor_type::other);
  CHECK(t.at("i").dtype == "I8");
  float h[5];
  CHECK(to_f32(t.at("h"), h));
  CHECK(h[0] == 1);
  CHECK(h[1] == -2);
  CHECK(h[2] == 0x1.0p-24F);
  CHECK(h[3] == 65504);
  CHECK(std::signbit(h[4]));
  float b[2];
  CHECK(to_f32(t.at("b"), b));
  CHECK(b[0] == 1);
  CHECK(b[1] == -5);
  const std::uint16_t infinite = 0x7C00;
  std::memcpy(file.data() + file.size() - 15, &infinite, 2);
  CHECK_FALSE(to_f32(read_safetensors(bytes(file), "f").at("h"), h));
}

TEST_CASE("headers that lie are refused") {
  const auto refused = [](const std::string& file) {
    try {
      (void)read_safetensors(bytes(file), "f");
    } catch (const config_error& e) {
      return test::gist(e.what()).find('\n') == std::string::npos;
    }
    return false;
  };
  const auto entry = [](const std::string& shape, const std::string& offsets) {
    return safetensors(
        R"({"t":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}", 8);
  };
  CHECK_FALSE(refused(entry("[2]", "[0,8]")));
  CHECK(refused(entry("[2]", "[0,9]")));
  CHECK(refused(entry("[3]", "[0,12]")));
  CHECK(refused(entry("[2]", "[8,0]")));
  CHECK(refused(entry("[2]", "[-8,0]")));
  CHECK(refused(entry("[-2]", "[0,8]")));
  CHECK(refused(entry("[4611686018427387904,4]", "[0,0]")));
  CHECK(refused(entry("[1e300]", "[0,8]")));
  CHECK(refused(entry("{}", "[0,8]")));
  CHECK(refused(entry("[2]", "[0]")));
  CHECK(refused(entry("[2]", "[18446744073709551608,18446744073709551615]")));
  CHECK(refused(entry("[1,1,1,1,1,1,1,1,2]", "[0,8]")));
  CHECK(refused(safetensors("[]", 0)));
  CHECK(refused(safetensors("{", 0)));
  CHECK(refused("1234567"));
  CHECK(refused(std::string(8, '\xFF')));
}

TEST_CASE("tensors must take the bytes of their shapes, and every byte once") {
  const auto complaint = [](const std::string& header, std::size_t data) {
    try {
      (void)read_safetensors(bytes(safetensors(header, data)), "f");
    } catch (const config_error& e) {
      return test::gist(e.what());
    }
    return test::gist{""};
  };
  const auto tensor = [](const std::string& name, const std::string& dtype,
                         const std::string& shape, const std::string& offsets) {
    return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape +
           R"(,"data_offsets":)" + offsets + "}";
  };
  const auto two = [&](const std::string& a, const std::string& b) {
    return complaint("{" + tensor("a", "F32", "[2]", a) + "," + tensor("b", "F32", "[2]", b) + "}",
                     16);
  };
  CHECK(two("[0,8]", "[8,16]").empty());
  CHECK(two("[8,16]", "[0,8]").empty());
  CHECK(two("[0,8]", "[0,8]") == "f: tensor b: data_offsets [0,8] overlap ... tensor a");
  CHECK(two("[0,8]", "[4,12]") == "f: tensor b: data_offsets [4,12] overlap ... tensor a");
  const std::string a = tensor("a", "F32", "[2]", "[0,8]");
  CHECK(complaint("{" + a + "}", 8).empty());
  CHECK(complaint("{" + a + "}", 9) == "f: ... bytes 8 to 9 ... no tensor");
  CHECK(complaint("{" + tensor("a", "F32", "[2]", "[4,12]") + "}", 12) ==
        "f: ... bytes 0 to 4 ... no tensor");
  CHECK(complaint("{" + a + "," + tensor("b", "F32", "[1]", "[12,16]") + "}", 16) ==
        "f: ... bytes 8 to 12 ... no tensor");
  CHECK(complaint("{}", 0).empty());
  CHECK(complaint("{}", 1) == "f: ... bytes 0 to 1 ... no tensor");
  CHECK(complaint("{" + a + "," + tensor("none", "F32", "[0]", "[8,8]") + "}", 8).empty());
  // Of every dtype the size counts, also of those that are not converted.
  for (const auto& [dtype, bytes] : std::vector<std::pair<std::string, std::string>>{
           {"I8", "8"}, {"F8_E4M3", "8"}, {"BF16", "16"}, {"F64", "64"}, {"F4", "4"}}) {
    CAPTURE(dtype);
    CHECK(complaint("{" + tensor("a", dtype, "[8]", "[0," + bytes + "]") + "}", 64) ==
          (bytes == "64" ? "" : "f: ... bytes " + bytes + " to 64 ... no tensor"));
    CHECK(complaint("{" + tensor("a", dtype, "[8]", "[0,63]") + "}", 63) ==
          "f: tensor a: data_offsets [0,63] ... " + bytes + " bytes of 63");
  }
  CHECK(complaint("{" + tensor("a", "F4", "[3]", "[0,1]") + "}", 1) ==
        "f: tensor a: ... last byte");
  CHECK(complaint("{" + tensor("a", "Q4_0", "[3]", "[0,1]") + "}", 1) ==
        "f: tensor a: dtype Q4_0 ...");
  CHECK(complaint("{" + tensor("a\\nb", "Q\\n", "[3]", "[0,1]") + "}", 1) ==
        "f: tensor a?b: dtype Q? ...");
}

TEST_CASE("random damage never does worse than an error") {
  const folder f;
  llama_config c = named_config("tiny");
  c.layers = 1;
  save_weights(random_weights(c, 1), f.path);
  const std::string path = f.path + "/model.safetensors";
  std::string file(std::filesystem::file_size(path), '\0');
  std::ifstream{path, std::ios::binary}.read(file.data(),
                                             static_cast<std::streamsize>(file.size()));
  std::uint64_t header = 0;
  std::memcpy(&header, file.data(), 8);
  int errors = 0;
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    std::string bad = file.substr(0, random.one_in(10) ? random.below(file.size()) : file.size());
    for (std::uint32_t n = 1 + random.below(3U); n > 0 && !bad.empty(); --n) {
      const std::size_t at = random.below(std::min<std::size_t>(bad.size(), header + 8));
      bad[at] = static_cast<char>(static_cast<unsigned char>(random.below(256U)));
    }
    try {
      for (const auto& [name, t] : read_safetensors(bytes(bad), "f")) {
        if (t.type == tensor_type::other) continue;
        std::vector<float> values(t.count());
        (void)to_f32(t, values.data());
      }
    } catch (const config_error&) {
      ++errors;
    }
  }
  CHECK(errors > 1000);
}

TEST_CASE("a folder with something missing or wrong is refused, naming it") {
  const folder f;
  const auto complaint = [&] {
    try {
      (void)load_weights(f.path);
    } catch (const config_error& e) {
      return test::gist(e.what());
    }
    return test::gist{""};
  };
  CHECK(complaint() == f.path + "/config.json: ... not a file");
  llama_config c = named_config("tiny");
  llama_weights w = random_weights(c, 1);
  save_weights(w, f.path);
  CHECK(complaint().empty());
  json config = json::parse(read_text(f.path + "/config.json"));
  config["vocab_size"] = 258;
  config["eos_token_id"] = 257;
  write_text(f.path + "/config.json", config.dump());
  CHECK(
      complaint() ==
      f.path +
          "/model.safetensors: tensor model.embed_tokens.weight: shape ... [259,64] ... [258,64]");
  config["vocab_size"] = 10'000'000;
  write_text(f.path + "/config.json", config.dump());
  CHECK(complaint() == "... parameters ... fit ...");  // Before it allocates.
  w.layers[0].down[3] = std::numeric_limits<float>::quiet_NaN();
  save_weights(w, f.path);
  CHECK(complaint() == "... model.layers.0.mlp.down_proj.weight: values ... finite");
  write_text(f.path + "/model.safetensors.index.json", R"({"weight_map":{"a":"../model"}})");
  CHECK(complaint() == "... model.safetensors.index.json: ... file name");
}

/// A safetensors file's header, to be changed, and its data.
struct weight_file {
  explicit weight_file(std::string at) : path{std::move(at)} {
    const std::string all = read_text(path);
    std::uint64_t size = 0;
    std::memcpy(&size, all.data(), 8);
    header = json::parse(all.substr(8, size));
    data = all.substr(8 + size);
  }
  void add(const std::string& name, const std::string& dtype, const json& shape,
           const std::string& values) {
    header[name] = {{"dtype", dtype},
                    {"shape", shape},
                    {"data_offsets", {data.size(), data.size() + values.size()}}};
    data += values;
  }
  void write() const {
    std::string out = safetensors(header.dump(), 0);
    write_text(path, out += data);
  }
  std::string path;
  json header;
  std::string data;
};

TEST_CASE("tensors that would change the output and are not ours are refused, naming them") {
  const folder f;
  const std::string path = f.path + "/model.safetensors";
  const auto complaint = [&] {
    try {
      (void)load_weights(f.path);
    } catch (const config_error& e) {
      return test::gist(e.what());
    }
    return test::gist{""};
  };
  llama_config c = named_config("tiny");
  llama_weights w = random_weights(c, 1);
  save_weights(w, f.path);
  const weight_file good{path};
  const std::string ones(64 * 4, '\x3F');
  const std::string zeros(64 * 4, '\0');
  const auto with = [&](const std::string& name, const std::string& values) {
    weight_file changed = good;
    changed.add(name, "F32", {64}, values);
    changed.write();
    return complaint();
  };
  for (const char* what :
       {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
        "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "input_layernorm"}) {
    const std::string name = std::string{"model.layers.1."} + what + ".bias";
    CAPTURE(name);
    CHECK(with(name, ones) == path + ": tensor " + name + ": ... biases ... not supported");
    CHECK(with(name, zeros).empty());
  }
  CHECK_FALSE(with("model.norm.bias", ones).empty());
  CHECK_FALSE(with("lm_head.bias", ones).empty());
  CHECK(with("model.layers.0.self_attn.q_norm.weight", ones) ==
        path + ": tensor model.layers.0.self_attn.q_norm.weight: ... not supported");
  CHECK_FALSE(with("model.layers.2.input_layernorm.weight", ones).empty());
  CHECK(with("model.layers.0.self_attn.rotary_emb.inv_freq", ones).empty());
  CHECK(with("score.weight", ones).empty());

  // Each is as long as F32 says, so that only the dtype is wrong.
  for (const auto& [dtype, width] : std::vector<std::pair<std::string, std::size_t>>{
           {"I8", 256}, {"F8_E4M3", 256}, {"F64", 32}}) {
    CAPTURE(dtype);
    weight_file changed = good;
    changed.header["model.norm.weight"]["dtype"] = dtype;
    changed.header["model.norm.weight"]["shape"] = {width};
    changed.write();
    CHECK(complaint() == path + ": tensor model.norm.weight: dtype " + dtype +
                             " ... not supported ... F32 ... F16 ... BF16");
    changed = good;
    changed.add("score.weight", dtype, {width}, ones);
    changed.write();
    CHECK(complaint().empty());
  }

  c.tied = true;
  w = random_weights(c, 1);
  save_weights(w, f.path);
  weight_file tied{path};
  const auto* embedding = reinterpret_cast<const char*>(w.embedding.data());
  std::string head{embedding, w.embedding.size() * sizeof(float)};
  const weight_file without = tied;
  tied.add("lm_head.weight", "F32", {259, 64}, head);
  tied.write();
  CHECK(complaint().empty());
  tied = without;
  head[5] = static_cast<char>(head[5] ^ 1);
  tied.add("lm_head.weight", "F32", {259, 64}, head);
  tied.write();
  CHECK(complaint() == "... lm_head.weight: ... differs ... model.embed_tokens.weight");
}

TEST_CASE("a tensor in two shards is refused") {
  const folder f;
  save_weights(random_weights(named_config("tiny"), 1), f.path, 2);
  CHECK_NOTHROW((void)load_weights(f.path));
  const std::string first = f.path + "/model-00001-of-00002.safetensors";
  weight_file second{f.path + "/model-00002-of-00002.safetensors"};
  second.add("model.embed_tokens.weight", "F32", {259, 64}, std::string(259 * 64 * 4, '\0'));
  second.write();
  try {
    (void)load_weights(f.path);
    CHECK(false);
  } catch (const config_error& e) {
    CHECK(test::gist(e.what()) == second.path + ": tensor model.embed_tokens.weight: ... " + first);
  }
}

TEST_CASE("a config that is not this Llama is refused") {
  const json good = json::parse(write_config(named_config("tiny")));
  CHECK(parse_config(good.dump(), "c").hidden == 64);
  for (const auto& [field, value] :
       std::vector<std::pair<std::string, json>>{{"model_type", "gpt2"},
                                                 {"hidden_act", "gelu"},
                                                 {"attention_bias", true},
                                                 {"num_hidden_layers", 0},
                                                 {"num_hidden_layers", 2.5},
                                                 {"num_key_value_heads", 3},
                                                 {"head_dim", 3},
                                                 {"hidden_size", nullptr},
                                                 {"vocab_size", -5},
                                                 {"rms_norm_eps", 0},
                                                 {"rope_theta", "x"},
                                                 {"eos_token_id", 259},
                                                 {"rope_scaling", {{"rope_type", "yarn"}}},
                                                 {"max_position_embeddings", 1}}) {
    CAPTURE(field);
    json bad = good;
    bad[field] = value;
    CHECK_THROWS_AS((void)parse_config(bad.dump(), "c"), config_error);
  }
  CHECK_THROWS_AS((void)parse_config("{", "c"), config_error);
  CHECK_THROWS_AS((void)named_config("huge"), config_error);
}

/// The small config with other fields; null takes one away.
json changed(const json& fields) {
  json c = json::parse(write_config(named_config("tiny")));
  c.merge_patch(fields);
  return c;
}

test::gist complaint_of(const json& config) {
  try {
    (void)parse_config(config.dump(), "config.json");
  } catch (const config_error& e) {
    return test::gist(e.what());
  }
  return test::gist{""};
}

TEST_CASE("rotary positions are read where transformers 5 writes them, and where others do") {
  const json llama3 = {{"rope_type", "llama3"},
                       {"factor", 32.0},
                       {"low_freq_factor", 1},
                       {"high_freq_factor", 4},
                       {"original_max_position_embeddings", 8192}};
  const auto read = [](const json& fields) {
    return parse_config(changed(fields).dump(), "config.json");
  };
  json with_theta = llama3;
  with_theta["rope_theta"] = 500000;
  for (const json& fields :
       {json{{"rope_theta", 500000}, {"rope_scaling", llama3}},
        json{{"rope_theta", nullptr}, {"rope_parameters", with_theta}},
        json{{"rope_theta", nullptr}, {"rope_scaling", with_theta}},
        json{{"rope_theta", 5e5}, {"rope_scaling", llama3}, {"rope_parameters", with_theta}},
        json{{"rope_theta", nullptr},
             {"rope_scaling", llama3},
             {"rope_parameters", {{"rope_theta", 5e5}}}}}) {
    CAPTURE(fields.dump());
    const llama_config c = read(fields);
    CHECK(c.rope_theta == 500000);
    CHECK(c.stretch.type == rope_type::llama3);
    CHECK(c.stretch.factor == 32);
    CHECK(c.stretch.original_positions == 8192);
  }
  for (const json& fields :
       {json{{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 10000.0}}}},
        json{{"rope_theta", nullptr}}, json{{"rope_scaling", json::object()}},
        json{{"rope_scaling", {{"type", "default"}}}},
        json{{"rope_scaling", {{"type", "linear"}, {"factor", 1.0}}}},
        json{{"rope_parameters",
              {{"rope_type", "default"}, {"type", "default"}, {"partial_rotary_factor", 1.0}}}}}) {
    CAPTURE(fields.dump());
    CHECK(complaint_of(changed(fields)).empty());
    const llama_config c = read(fields);
    CHECK(c.rope_theta == 10000);
    CHECK(c.stretch.type == rope_type::plain);
  }
  const auto wrong = [](const json& fields) { return complaint_of(changed(fields)); };
  for (const json& factor : {json{}, json(0), json("2")}) {
    for (const char* type : {"linear", "yarn"}) {
      CHECK(wrong({{"rope_scaling", {{"type", type}, {"factor", factor}}}}) ==
            "config.json: rope_scaling.factor: bad value");
    }
  }
  CHECK(wrong({{"rope_scaling", {{"type", "dynamic"}, {"factor", 2}}}}) ==
        "config.json: rope_scaling.type: bad value");
  CHECK(wrong({{"rope_parameters", {{"rope_type", "longrope"}, {"factor", 2}}}})
            .starts_with("config.json: rope_parameters.rope_type: bad value"));
  CHECK(wrong({{"rope_scaling", {{"factor", 2}}}})
            .starts_with("config.json: rope_scaling.rope_type: bad value"));
  CHECK(wrong({{"rope_scaling", {{"type", "default"}, {"rope_type", "llama3"}}}}) ==
        "config.json: rope_scaling.type: bad value");
  CHECK(wrong({{"rope_scaling", "linear"}}) == "config.json: rope_scaling: bad value");
  CHECK(wrong({{"rope_parameters", {{"full_attention", {{"rope_type", "default"}}}}}})
            .starts_with("config.json: rope_parameters.rope_type: bad value"));
  CHECK(wrong({{"rope_parameters", {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}}}}) ==
        "config.json: rope_parameters.partial_rotary_factor: bad value");
  // All that llama3 needs must be there: nobody's guess is the model's value.
  for (const char* key :
       {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
    json part = llama3;
    part.erase(key);
    CHECK(wrong({{"rope_scaling", part}}) ==
          "config.json: rope_scaling." + std::string{key} + ": bad value");
    CHECK(wrong({{"rope_parameters", part}}).starts_with("config.json: rope_parameters."));
  }
  // Two places that say different things.
  CHECK(wrong({{"rope_theta", 10000}, {"rope_parameters", with_theta}}) ==
        "config.json: rope_theta: ... 10000 ... 500000");
  json other = with_theta;
  other["factor"] = 8;
  CHECK(wrong({{"rope_theta", nullptr}, {"rope_scaling", llama3}, {"rope_parameters", other}})
            .starts_with("config.json: rope_scaling: bad value"));
  CHECK_FALSE(
      wrong({{"rope_scaling", llama3}, {"rope_parameters", {{"rope_type", "default"}}}}).empty());
}

TEST_CASE("positions that are stretched linearly or by YaRN are read as transformers reads them") {
  const auto read = [](const json& fields) {
    return parse_config(changed(fields).dump(), "config.json");
  };
  const llama_config linear = read({{"rope_scaling", {{"type", "linear"}, {"factor", 4}}}});
  CHECK(linear.stretch == rope_stretch{.type = rope_type::linear, .factor = 4});
  CHECK(linear.max_positions == 2048);
  const llama_config yarn =
      read({{"rope_scaling",
             {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 2048}}}});
  CHECK(yarn.stretch.type == rope_type::yarn);
  CHECK(yarn.stretch.original_positions == 2048);
  CHECK(yarn.stretch.growth == doctest::Approx(1.1386294));  // 0.1 ln 4 + 1.
  CHECK(yarn.max_positions == 8192);
  // DeepSeek's: (0.1 · 0.707 ln 40 + 1) / (0.1 · 1 ln 40 + 1).
  const json both{{"rope_type", "yarn"}, {"factor", 40},    {"beta_fast", 64},
                  {"beta_slow", 2},      {"mscale", 0.707}, {"mscale_all_dim", 1.0},
                  {"truncate", false}};
  const llama_config deep = read({{"rope_parameters", both}});
  CHECK(deep.stretch.growth == doctest::Approx(1.2608038 / 1.3688879));
  CHECK(deep.stretch.fast == 64);
  CHECK(deep.stretch.slow == 2);
  CHECK_FALSE(deep.stretch.truncates);
  CHECK(deep.stretch.original_positions == 2048);
  json given = both;
  given["attention_factor"] = 1.5;
  CHECK(read({{"rope_scaling", given}}).stretch.growth == 1.5);
  given["beta_slow"] = 65;
  CHECK(complaint_of(changed({{"rope_scaling", given}})) ==
        "config.json: rope_scaling.beta_fast: bad value");
  for (const llama_config& c : {linear, yarn, deep}) {
    CHECK(parse_config(write_config(c), "c") == c);
  }
}

TEST_CASE("the kin of a Llama are read by their names, with what each means by silence") {
  const auto kin = [](const char* type, const char* architecture, json more = json::object()) {
    more["model_type"] = type;
    more["architectures"] = json::array({architecture});
    return changed(more);
  };
  const auto read = [](const json& config) { return parse_config(config.dump(), "config.json"); };
  json mistral = kin("mistral", "MistralForCausalLM");
  CHECK(complaint_of(mistral) == "config.json: sliding_window: bad value");  // 4096, unsaid.
  mistral["sliding_window"] = nullptr;
  CHECK(read(mistral) == read(changed(json::object())));
  mistral["sliding_window"] = 4096;
  CHECK(complaint_of(mistral) == "config.json: sliding_window: bad value");
  const json window{{"sliding_window", 4096}};
  const llama_config two = read(kin("qwen2", "Qwen2ForCausalLM", window));
  CHECK(two.qkv_bias);
  CHECK_FALSE(two.qk_norm);
  const llama_config three = read(kin("qwen3", "Qwen3ForCausalLM", window));
  CHECK(three.qk_norm);
  CHECK_FALSE(three.qkv_bias);
  CHECK(read(kin("qwen3", "Qwen3ForCausalLM", {{"head_dim", nullptr}})).head_size == 128);
  for (const llama_config& c : {two, three}) CHECK(parse_config(write_config(c), "c") == c);
  CHECK(complaint_of(kin("qwen2", "Qwen2ForCausalLM",
                         {{"sliding_window", 4096}, {"use_sliding_window", true}})) ==
        "config.json: sliding_window: bad value");
  CHECK(complaint_of(kin("qwen3", "Qwen3ForCausalLM", {{"attention_bias", true}})) ==
        "config.json: attention_bias: bad value");
  CHECK(complaint_of(kin("qwen3", "Qwen2ForCausalLM"))
            .starts_with("config.json: architectures: bad value"));
}

TEST_CASE("what Qwen has more is written and read back, and missed where it is not there") {
  const folder f;
  for (const bool is_three : {false, true}) {
    llama_config c = named_config("tiny");
    (is_three ? c.qk_norm : c.qkv_bias) = true;
    const llama_weights w = random_weights(c, 5);
    save_weights(w, f.path);
    const llama_weights back = load_weights(f.path);
    CHECK(back.config == c);
    for (std::size_t i = 0; i < c.layers; ++i) {
      CHECK(back.layers[i].qkv_bias == w.layers[i].qkv_bias);
      CHECK(back.layers[i].q_norm == w.layers[i].q_norm);
      CHECK(back.layers[i].k_norm == w.layers[i].k_norm);
    }
    CHECK(w.layers[1].qkv_bias.size() == (is_three ? 0 : 64 + 2 * 32));
    CHECK(w.layers[1].k_norm.size() == (is_three ? 16 : 0));
    save_weights(random_weights(named_config("tiny"), 5), f.path);
    write_text(f.path + "/config.json", write_config(c));
    const auto said = test::gist_of<config_error>([&] { (void)load_weights(f.path); });
    CHECK(said == std::string{"... model.layers.0.self_attn."} +
                      (is_three ? "q_norm.weight" : "q_proj.bias") + " ... missing");
  }
}

TEST_CASE("what would change the output is refused by its name, what is neutral is not") {
  const auto refused = [](const char* key, const json& value) {
    CAPTURE(key);
    const std::string said = complaint_of(changed({{key, value}}));
    CHECK(said == "config.json: " + std::string{key} + ": bad value");
    CHECK(said.find('\n') == std::string::npos);
  };
  refused("model_type", "mixtral");
  refused("architectures", {"Qwen2ForCausalLM"});
  refused("architectures", "LlamaForCausalLM");
  refused("partial_rotary_factor", 0.5);
  refused("sliding_window", 4096);
  refused("layer_types", {"full_attention", "sliding_attention"});
  refused("quantization_config", {{"bits", 4}, {"quant_method", "gptq"}});
  refused("attention_bias", true);
  refused("mlp_bias", true);
  refused("logit_scale", 0.5);
  refused("hidden_act", "gelu");
  const json neutral = {{"partial_rotary_factor", 1.0},
                        {"use_sliding_window", false},
                        {"sliding_window", 4096},
                        {"layer_types", {"full_attention", "full_attention"}},
                        {"logit_scale", 1},
                        {"pretraining_tp", 1}};
  CHECK(complaint_of(changed(neutral)).empty());
  json config = changed(neutral);
  config["sliding_window"] = nullptr;
  config["quantization_config"] = nullptr;
  CHECK(complaint_of(config).empty());
  // Without a model_type the architecture still says that it is another.
  CHECK(complaint_of(changed({{"model_type", nullptr}})).empty());
  CHECK_FALSE(
      complaint_of(changed({{"model_type", nullptr}, {"architectures", {"GemmaForCausalLM"}}}))
          .empty());
}

TEST_CASE("texts end where generation_config.json says, as in transformers") {
  const folder f;
  save_weights(random_weights(named_config("tiny"), 1), f.path);
  const std::string path = f.path + "/generation_config.json";
  using ids = std::vector<std::int32_t>;
  const auto ends = [&](const std::string& text) {
    write_text(path, text);
    return load_weights(f.path).config.end_tokens;
  };
  CHECK(load_weights(f.path).config.end_tokens == ids{257});
  CHECK(ends(R"({"eos_token_id":[257,258,3]})") == ids{257, 258, 3});
  CHECK(ends(R"({"eos_token_id":258})") == ids{258});
  CHECK(ends(R"({"temperature":0.6})") == ids{257});
  CHECK(ends(R"({"eos_token_id":null})") == ids{257});
  const auto complaint = [&](const std::string& text) {
    try {
      (void)ends(text);
    } catch (const config_error& e) {
      return test::gist(e.what());
    }
    return test::gist{""};
  };
  CHECK(complaint("[") == path + ": not a JSON object");
  CHECK(complaint(R"({"eos_token_id":[1,259]})") == path + ": eos_token_id: bad value");
}

}  // namespace
}  // namespace cohort::llama::weights_test
