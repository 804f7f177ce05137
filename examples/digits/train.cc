// The digits example in C++ on libgradbus alone: no framework, a few loops.
//
//   gradbus run -np 4 --agents 2 -- build/release/bin/digits_train
//
// Model, data and random numbers are those of train.py (README.md); gradients are computed straight
// into shared memory. The last line on stdout, from rank 0, is one JSON object.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "gradbus/gradbus.hpp"

namespace {

constexpr int kPixels = 64, kHidden = 64, kClasses = 10;
constexpr int kEpochs = 20, kBatch = 48;  // epochs: unless the first argument says otherwise
constexpr float kRate = 0.2f, kMomentum = 0.9f;
constexpr uint64_t kSeed = 1;

struct Image {
  float pixels[kPixels];
  int label;
};

// Steele, Lea and Flood, OOPSLA 2014.
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  float uniform(double bound) {
    const double unit = static_cast<double>(next() >> 11) * 0x1p-53;
    return static_cast<float>((unit * 2.0 - 1.0) * bound);
  }

 private:
  uint64_t state_;
};

void load(const std::string& path, std::vector<Image>& train, std::vector<Image>& test) {
  std::ifstream file(path);
  if (!file)
    throw std::runtime_error("cannot open " + path + "; start from the repository's folder");
  std::string line;
  for (int row = 0; std::getline(file, line); ++row) {
    std::stringstream cells(line);
    Image image{};
    std::string cell;
    for (float& pixel : image.pixels) {
      std::getline(cells, cell, ',');
      pixel = static_cast<float>(std::stoi(cell)) / 16;
    }
    std::getline(cells, cell, ',');
    image.label = std::stoi(cell);
    (row % 5 == 0 ? test : train).push_back(image);
  }
}

// Parameters or gradients of 64-64-10 in one vector: weight and bias of each layer.
struct Layout {
  static constexpr int kW1 = 0, kB1 = kW1 + kHidden * kPixels, kW2 = kB1 + kHidden,
                       kB2 = kW2 + kClasses * kHidden, kCount = kB2 + kClasses;
};

std::vector<float> initial_parameters() {
  std::vector<float> parameters(Layout::kCount);
  SplitMix64 random(kSeed);
  for (int i = 0; i < Layout::kCount; ++i)
    parameters[i] = random.uniform(1.0 / std::sqrt(i < Layout::kW2 ? kPixels : kHidden));
  return parameters;
}

std::vector<int> epoch_order(int count, int epoch) {
  SplitMix64 random(kSeed + 1000003u * static_cast<uint64_t>(epoch + 1));
  std::vector<int> order(count);
  std::iota(order.begin(), order.end(), 0);
  for (int last = count - 1; last > 0; --last)
    std::swap(order[last], order[random.next() % static_cast<uint64_t>(last + 1)]);
  return order;
}

struct Activations {
  float hidden[kHidden];
  float probability[kClasses];
};

// out = weight [rows, columns] * in + bias
void linear(const float* weight, const float* bias, const float* in, float* out, int rows,
            int columns) {
  for (int r = 0; r < rows; ++r) {
    float sum = bias[r];
    for (int c = 0; c < columns; ++c) sum += weight[r * columns + c] * in[c];
    out[r] = sum;
  }
}

void forward(const float* p, const Image& image, Activations& a) {
  linear(p + Layout::kW1, p + Layout::kB1, image.pixels, a.hidden, kHidden, kPixels);
  for (float& unit : a.hidden) unit = std::tanh(unit);
  linear(p + Layout::kW2, p + Layout::kB2, a.hidden, a.probability, kClasses, kHidden);
  const float top = *std::max_element(a.probability, a.probability + kClasses);
  float sum = 0;
  for (float& value : a.probability) sum += value = std::exp(value - top);
  for (float& value : a.probability) value /= sum;
}

// Adds d(cross entropy)/d(parameters) * scale of one image; returns its loss.
float backward(const float* p, const Image& image, float scale, float* grad) {
  Activations a;
  forward(p, image, a);
  const float loss = -std::log(std::max(a.probability[image.label], 1e-30f));
  float delta_hidden[kHidden] = {};
  for (int k = 0; k < kClasses; ++k) {
    const float delta = (a.probability[k] - (k == image.label ? 1.0f : 0.0f)) * scale;
    grad[Layout::kB2 + k] += delta;
    for (int h = 0; h < kHidden; ++h) {
      grad[Layout::kW2 + k * kHidden + h] += delta * a.hidden[h];
      delta_hidden[h] += delta * p[Layout::kW2 + k * kHidden + h];
    }
  }
  for (int h = 0; h < kHidden; ++h) {
    delta_hidden[h] *= 1 - a.hidden[h] * a.hidden[h];
    grad[Layout::kB1 + h] += delta_hidden[h];
    for (int i = 0; i < kPixels; ++i)
      grad[Layout::kW1 + h * kPixels + i] += delta_hidden[h] * image.pixels[i];
  }
  return loss;
}

// FNV-1a over the bytes of the parameters.
uint64_t hash_of(const std::vector<float>& parameters) {
  uint64_t hash = 0xcbf29ce484222325u;
  const auto* bytes = reinterpret_cast<const unsigned char*>(parameters.data());
  for (size_t i = 0; i < parameters.size() * sizeof(float); ++i)
    hash = (hash ^ bytes[i]) * 0x100000001b3u;
  return hash;
}

struct Result {
  double loss = 0, accuracy = 0, seconds = 0;
  int steps = 0;
};

class Trainer {
 public:
  Trainer(gradbus::Session& session, std::vector<float>& parameters)
      : session_(session),
        parameters_(parameters),
        velocity_(parameters.size()),
        tensor_(session.register_tensor("digits.grad", parameters.size())) {}

  // This rank's slice of a global batch; the mean over ranks is the mean over the batch.
  double step(const std::vector<Image>& images, const int* batch) {
    const int part = kBatch / session_.size();
    float* grad = tensor_.data<float>();
    std::fill_n(grad, parameters_.size(), 0.0f);
    double loss = 0;
    for (int i = 0; i < part; ++i)
      loss += backward(parameters_.data(), images[batch[session_.rank() * part + i]],
                       1.0f / static_cast<float>(part), grad);
    tensor_.start();
    tensor_.wait();
    for (size_t i = 0; i < parameters_.size(); ++i) {
      velocity_[i] = kMomentum * velocity_[i] + grad[i];
      parameters_[i] -= kRate * velocity_[i];
    }
    return loss / part;
  }

  double accuracy(const std::vector<Image>& images) {
    int64_t right = 0;
    Activations a;
    for (size_t i = session_.rank(); i < images.size(); i += session_.size()) {
      forward(parameters_.data(), images[i], a);
      right += std::max_element(a.probability, a.probability + kClasses) - a.probability ==
               images[i].label;
    }
    session_.allreduce(&right, 1, GRADBUS_SUM, "test.right");
    return static_cast<double>(right) / static_cast<double>(images.size());
  }

 private:
  gradbus::Session& session_;
  std::vector<float>& parameters_;
  std::vector<float> velocity_;
  gradbus::Tensor tensor_;
};

Result train(gradbus::Session& session, std::vector<float>& parameters, int epochs) {
  std::vector<Image> images, tests;
  load("examples/digits/data/optdigits.csv", images, tests);
  Trainer trainer(session, parameters);
  Result result;
  const int steps = static_cast<int>(images.size()) / kBatch;
  const auto started = std::chrono::steady_clock::now();
  for (int epoch = 0; epoch < epochs; ++epoch) {
    const std::vector<int> order = epoch_order(static_cast<int>(images.size()), epoch);
    double loss = 0;
    for (int step = 0; step < steps; ++step)
      loss += trainer.step(images, order.data() + step * kBatch);
    session.allreduce(&loss, 1, GRADBUS_AVERAGE, "train.loss");
    result.loss = loss / steps;
    result.accuracy = trainer.accuracy(tests);
    result.steps += steps;
    if (session.rank() == 0)
      std::fprintf(stderr, "epoch %2d/%d  loss %.4f  accuracy %.4f\n", epoch + 1, epochs,
                   result.loss, result.accuracy);
  }
  result.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return result;
}

int run(int epochs) {
  gradbus::Session session;
  if (kBatch % session.size() != 0)
    throw std::runtime_error("48 images a batch cannot be shared by " +
                             std::to_string(session.size()) + " ranks");
  std::vector<float> parameters = initial_parameters();
  session.broadcast(parameters.data(), parameters.size());
  const Result result = train(session, parameters, epochs);
  const auto hash = static_cast<int64_t>(hash_of(parameters));
  for (const int64_t other : session.allgather(&hash, 1))
    if (other != hash) throw std::runtime_error("the ranks ended with different parameters");
  if (session.rank() == 0)
    std::printf(
        "{\"accuracy\": %.6f, \"loss\": %.6f, \"samples_per_s\": %.1f, \"param_hash\": "
        "\"%016llx\", "
        "\"world_size\": %d, \"epochs\": %d, \"steps\": %d, \"seconds\": %.3f, "
        "\"ranks_identical\": true}\n",
        result.accuracy, result.loss, result.steps * kBatch / result.seconds,
        static_cast<unsigned long long>(hash), session.size(), epochs, result.steps,
        result.seconds);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? std::max(1, std::atoi(argv[1])) : kEpochs);
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "digits_train: %s\n", problem.what());
    return 1;
  }
}
