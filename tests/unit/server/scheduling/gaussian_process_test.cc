// The Gaussian process against scikit-learn 1.9.1. This made the expected values:
//
//   import numpy as np
//   from sklearn.gaussian_process import GaussianProcessRegressor as G
//   from sklearn.gaussian_process.kernels import RBF, Matern
//   x = np.array([[0.1, 0.9], [0.4, 0.2], [0.5, 0.5], [0.8, 0.7], [0.95, 0.05]])
//   y = np.array([3.0, 1.5, 1.0, 2.25, 4.0])
//   q = np.array([[0.45, 0.4], [0.0, 0.0], [0.8, 0.7]])
//   for k in (RBF([0.3, 0.5]), Matern([0.3, 0.5], nu=2.5)):
//       g = G(k, alpha=1e-3, optimizer=None, normalize_y=True).fit(x, y)
//       print(*g.predict(q, return_std=True), g.log_marginal_likelihood_value_)
#include "server/scheduling/tuner/gaussian_process.h"

#include <gtest/gtest.h>

#include "server/scheduling/tuner/bayesian_search.h"

namespace gradbus::scheduling {
namespace {

constexpr double kTolerance = 1e-6;

struct Expected {
  KernelKind kind;
  double means[3];
  double deviations[3];
  double log_marginal_likelihood;
};

constexpr Expected kExpected[] = {
    {KernelKind::kRbf,
     {1.09854329899, 2.47857059658, 2.24929992027},
     {0.0801044467088, 0.930837729198, 0.0337306417299},
     -7.0577769478},
    {KernelKind::kMatern52,
     {1.08995133073, 2.30615666066, 2.24979179665},
     {0.178353044594, 0.990630450707, 0.0337391245699},
     -7.03146367486},
};

GaussianProcess fitted(KernelKind kind) {
  Eigen::MatrixXd points(5, 2);
  points << 0.1, 0.9, 0.4, 0.2, 0.5, 0.5, 0.8, 0.7, 0.95, 0.05;
  Eigen::VectorXd values(5);
  values << 3.0, 1.5, 1.0, 2.25, 4.0;
  return {{.kind = kind, .lengths = {0.3, 0.5}, .noise = 1e-3}, points, values};
}

TEST(GaussianProcess, MatchesScikitLearn) {
  const double questions[3][2] = {{0.45, 0.4}, {0.0, 0.0}, {0.8, 0.7}};
  for (const Expected& expected : kExpected) {
    const GaussianProcess process = fitted(expected.kind);
    EXPECT_NEAR(process.log_marginal_likelihood(), expected.log_marginal_likelihood, kTolerance);
    for (int i = 0; i < 3; ++i) {
      const Posterior posterior = process.at(Eigen::Vector2d(questions[i][0], questions[i][1]));
      EXPECT_NEAR(posterior.mean, expected.means[i], kTolerance) << i;
      EXPECT_NEAR(posterior.deviation, expected.deviations[i], kTolerance) << i;
    }
  }
}

TEST(GaussianProcess, EqualValuesAreNoDivisionByZero) {
  const Eigen::MatrixXd points = Eigen::MatrixXd::Constant(2, 1, 0.5);
  const GaussianProcess process({.lengths = {0.3}, .noise = 1e-3}, points,
                                Eigen::VectorXd::Constant(2, 7));
  EXPECT_NEAR(process.at(Eigen::VectorXd::Constant(1, 0.5)).mean, 7, 1e-9);
}

// Expect: with z = (best - mean) / deviation = 1, EI = 1 * 0.841345 + 1 * 0.241971.
TEST(ExpectedImprovement, FollowsTheFormula) {
  EXPECT_NEAR(expected_improvement({2, 1}, 3, 0), 1.0833155, 1e-6);
  EXPECT_NEAR(expected_improvement({2, 1}, 3, 1), 0.3989423, 1e-6);
  EXPECT_EQ(expected_improvement({2, 0}, 3, 0), 1);
  EXPECT_EQ(expected_improvement({4, 0}, 3, 0), 0);
}

}  // namespace
}  // namespace gradbus::scheduling
