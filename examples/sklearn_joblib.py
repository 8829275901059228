"""A grid search of scikit-learn whose fits run on the workers, through joblib.

Needs scikit-learn (`pip install scikit-learn`), and says so politely when it is missing:

    python examples/sklearn_joblib.py
    python examples/sklearn_joblib.py --scheduler grid_engine
"""

import argparse


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scheduler", help="processes, grid_engine, slurm or inline")
    scheduler = parser.parse_args().scheduler
    try:
        import joblib
        from sklearn.datasets import load_digits
        from sklearn.ensemble import RandomForestClassifier
        from sklearn.model_selection import GridSearchCV
    except ImportError as error:
        print(f"nothing to search with: {error}; `pip install scikit-learn` brings it")
        return

    import gridengine.joblib_backend  # noqa: F401 - makes the backend known to joblib

    data, digits = load_digits(return_X_y=True)
    choices = {"n_estimators": [10, 20], "max_depth": [4, 8]}
    search = GridSearchCV(RandomForestClassifier(random_state=1), choices, cv=3)
    with joblib.parallel_config("gridengine", scheduler=scheduler):
        search.fit(data, digits)
    for choice, score in zip(
        search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True
    ):
        print(f"{choice['n_estimators']} trees of depth {choice['max_depth']}: {score:.1%} right")
    print(f"best: {search.best_params_}")


if __name__ == "__main__":
    main()
