// Gaussian process regression: what measured costs say about points that were not measured.
//
// Rasmussen and Williams 2006, "Gaussian Processes for Machine Learning", algorithm 2.1 and
// equation 2.30. With the same kernel and noise it gives scikit-learn's results
// (GaussianProcessRegressor with optimizer=None and normalize_y=True). Pure; any thread. A fit of
// n points takes n^3 / 3 operations.
#pragma once

#include <Eigen/Dense>
#include <cstdint>
#include <vector>

namespace gradbus::scheduling {

enum class KernelKind : uint8_t {
  kRbf,       // exp(-d^2 / 2)
  kMatern52,  // (1 + sqrt(5) d + 5/3 d^2) exp(-sqrt(5) d)
};

// d is the Euclidean distance after each coordinate is divided by its length.
struct Kernel {
  KernelKind kind = KernelKind::kMatern52;
  std::vector<double> lengths;  // one per dimension, above 0
  double noise = 1e-6;          // variance added to each measured value, which have variance 1
};

struct Posterior {
  double mean = 0;
  double deviation = 0;  // standard deviation of the function, without the noise
};

class GaussianProcess {
 public:
  // A row per point. Values are shifted and scaled to mean 0 and variance 1. At least one point.
  GaussianProcess(Kernel kernel, Eigen::MatrixXd points, const Eigen::VectorXd& values);

  Posterior at(const Eigen::VectorXd& point) const;
  // log p(values | points, kernel), of the scaled values. Larger: the kernel explains them better.
  double log_marginal_likelihood() const;

 private:
  Eigen::VectorXd covariances(const Eigen::VectorXd& point) const;

  Kernel kernel_;
  Eigen::MatrixXd points_;  // each coordinate divided by its length
  double mean_ = 0;
  double scale_ = 1;
  Eigen::VectorXd values_;  // scaled
  Eigen::LLT<Eigen::MatrixXd> covariance_;
  Eigen::VectorXd weights_;  // covariance^-1 values
};

}  // namespace gradbus::scheduling
